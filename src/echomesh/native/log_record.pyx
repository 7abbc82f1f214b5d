"""Records of the log: written, checked and found in a buffer."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from echomesh.native.log_sums cimport em_crc32c, em_crc_setup

em_crc_setup()

HEADER_BYTES = HEADER
ORIGIN_BYTES = ORIGIN
GOOD, END, SHORT, BAD = RECORD_GOOD, RECORD_END, RECORD_SHORT, RECORD_BAD


cdef inline uint32_t sum_of(const char *at, uint32_t length) noexcept nogil:
    return em_crc32c(em_crc32c(0, at, 4), at + 8, length - 8)


cdef int64_t write_record(char *at, int64_t offset, int64_t time_ns, const char *origin, const char *event,
                          int64_t event_size) noexcept nogil:
    # Writes one record with its padding; the bytes it takes.
    cdef uint32_t length = <uint32_t>record_size(event_size, origin != NULL), crc
    cdef uint16_t flags = HAS_ORIGIN if origin != NULL else 0
    cdef char *body = at + HEADER
    memcpy(at, &length, 4)
    memcpy(at + 8, &offset, 8)
    memcpy(at + 16, &time_ns, 8)
    memcpy(at + 24, &flags, 2)
    memset(at + 26, 0, 2)
    if origin != NULL:
        memcpy(body, origin, ORIGIN)
        body += ORIGIN
    if event_size:
        memcpy(body, event, event_size)
    memset(body + event_size, 0, padded(length) - length)
    crc = sum_of(at, length)
    memcpy(at + 4, &crc, 4)
    return padded(length)


cdef void renumber(char *at, int64_t offset, int64_t time_ns) noexcept nogil:
    # A good record gets another offset and time.
    cdef uint32_t length, crc
    memcpy(&length, at, 4)
    memcpy(at + 8, &offset, 8)
    memcpy(at + 16, &time_ns, 8)
    crc = sum_of(at, length)
    memcpy(at + 4, &crc, 4)


cdef int check_record(const char *at, int64_t left, int64_t offset) noexcept nogil:
    # Whether a whole and true record stands here; a negative offset means any.
    cdef uint32_t length, crc
    cdef int state = check_form(at, left, offset)
    if state == RECORD_GOOD:
        memcpy(&length, at, 4)
        memcpy(&crc, at + 4, 4)
        if sum_of(at, length) != crc:
            state = RECORD_BAD
    return state


cdef inline int check_form(const char *at, int64_t left, int64_t offset) noexcept nogil:
    # The same but for its sum.
    cdef uint32_t length, crc
    cdef int64_t found, i
    cdef uint16_t flags, zero
    if left < HEADER:
        return RECORD_END if left <= 0 else RECORD_SHORT
    memcpy(&length, at, 4)
    memcpy(&crc, at + 4, 4)
    memcpy(&found, at + 8, 8)
    if length == 0 and crc == 0 and found == 0:
        return RECORD_END
    if length < HEADER or length > MAX_RECORD:
        return RECORD_BAD
    if padded(length) > left:
        return RECORD_SHORT
    memcpy(&flags, at + 24, 2)
    memcpy(&zero, at + 26, 2)
    if flags > 1 or zero or (flags and length < HEADER + ORIGIN) or (offset >= 0 and found != offset):
        return RECORD_BAD
    for i in range(length, padded(length)):
        if at[i]:
            return RECORD_BAD
    return RECORD_GOOD


cdef class Records:
    """Records that stand one behind the other in a buffer, each of them checked; offsets are consecutive from `first`.

    `stopped` says why there are no more: GOOD (the wanted end), END, SHORT or BAD, at `next_position`.
    """

    def __dealloc__(self):
        free(self.starts)

    def __len__(self):
        return self.count

    @property
    def next_offset(self) -> int:
        """The offset behind the last record."""
        return self.first + self.count

    cdef object at(self, Py_ssize_t i):
        cdef const char *record = self.base + self.starts[i]
        cdef uint32_t length
        cdef uint16_t flags
        cdef int64_t time_ns, skip = HEADER
        cdef object origin = None
        memcpy(&length, record, 4)
        memcpy(&time_ns, record + 16, 8)
        memcpy(&flags, record + 24, 2)
        if flags:
            origin = PyBytes_FromStringAndSize(record + HEADER, ORIGIN)
            skip += ORIGIN
        return self.first + i, time_ns, origin, PyBytes_FromStringAndSize(record + skip, length - skip)

    def __getitem__(self, Py_ssize_t i):
        """(offset, time_ns, origin or None, event bytes)."""
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.at(i)

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield self.at(i)

    def tuples(self) -> list:
        """All of them at once, quicker than one by one."""
        cdef Py_ssize_t i
        return [self.at(i) for i in range(self.count)]

    def events(self) -> list:
        """The bytes of the events alone."""
        cdef Py_ssize_t i
        cdef list found = []
        cdef const char *record
        cdef uint32_t length
        cdef uint16_t flags
        cdef int64_t skip
        for i in range(self.count):
            record = self.base + self.starts[i]
            memcpy(&length, record, 4)
            memcpy(&flags, record + 24, 2)
            skip = HEADER + (ORIGIN if flags else 0)
            found.append(PyBytes_FromStringAndSize(record + skip, length - skip))
        return found

    def position(self, Py_ssize_t i) -> int:
        """Where the record begins in the buffer."""
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.starts[i]

    def time_ns(self, Py_ssize_t i) -> int:
        """When the record was appended."""
        cdef int64_t time_ns
        if not 0 <= i < self.count:
            raise IndexError(i)
        memcpy(&time_ns, self.base + self.starts[i] + 16, 8)
        return time_ns

    def first_at(self, int64_t time_ns) -> int:
        """How many records are older than `time_ns`: the index of the first that is not."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.time_ns(middle) < time_ns:
                low = middle + 1
            else:
                high = middle
        return low

    def raw(self) -> memoryview:
        """The records as stored, with headers and padding."""
        cdef int64_t start = self.starts[0] if self.count else self.next_position
        return self.owner[start:self.next_position]


def scan(buffer, int64_t start, int64_t first, int64_t until=-1, int64_t max_records=1 << 40, int64_t skip_before=-1,
         int64_t summed=0):
    """The records from position `start` on, of which the first must have the offset `first`, below offset `until`.

    Those below the offset `skip_before` are checked, and left out. Before the position `summed` the sums are new, and are
    not looked at.
    """
    cdef Records found = Records.__new__(Records)
    cdef Py_buffer view
    cdef int64_t room = 256, size, position = start, offset = first
    cdef uint32_t length
    cdef int state = RECORD_GOOD
    cdef bint full = False
    found.owner = memoryview(buffer)      # as long as it is there, the bytes stay where they are
    found.first = first if skip_before < first else skip_before
    found.starts = <int64_t *>malloc(room * 8)
    if found.starts == NULL:
        raise MemoryError
    PyObject_GetBuffer(found.owner, &view, PyBUF_SIMPLE)
    try:
        found.base = <const char *>view.buf
        size = view.len
        if start < 0:
            raise ValueError(f"position {start}")
        with nogil:
            while (until < 0 or offset < until) and found.count < max_records:
                if position < summed:
                    state = check_form(found.base + position, size - position, offset)
                else:
                    state = check_record(found.base + position, size - position, offset)
                if state != RECORD_GOOD:
                    break
                if offset >= skip_before:
                    if found.count == room:
                        room *= 2
                        found.starts = <int64_t *>realloc(found.starts, room * 8)
                        if found.starts == NULL:
                            full = True
                            break
                    found.starts[found.count] = position
                    found.count += 1
                memcpy(&length, found.base + position, 4)
                position += padded(length)
                offset += 1
    finally:
        PyBuffer_Release(&view)
    if full:
        found.count = 0
        raise MemoryError
    found.next_position = position
    found.stopped = state
    if skip_before > offset:
        found.first = offset
    return found


def encode(int64_t offset, int64_t time_ns, origin, const uint8_t[::1] event) -> bytes:
    """One record with its padding."""
    cdef int64_t size = event.shape[0]
    cdef const char *from_where = NULL
    cdef bytes kept = None
    if origin is not None:
        kept = bytes(origin)
        if len(kept) != ORIGIN:
            raise ValueError(f"an origin has {ORIGIN} bytes, not {len(kept)}")
        from_where = kept
    made = PyBytes_FromStringAndSize(NULL, padded(record_size(size, from_where != NULL)))
    write_record(<char *><bytes>made, offset, time_ns, from_where, <const char *>&event[0] if size else NULL, size)
    return made


def find_record(const uint8_t[::1] buffer, int64_t start, int64_t above) -> tuple:
    """(position, offset) of the next true record with an offset over `above`, at any multiple of 8; (-1, -1) for none.

    For finding the way again behind damaged bytes.
    """
    cdef int64_t position = padded(start), size = buffer.shape[0], offset = -1
    cdef const char *base = <const char *>&buffer[0] if size else NULL
    cdef bint found = False
    with nogil:
        while position + HEADER <= size:
            if check_record(base + position, size - position, -1) == RECORD_GOOD:
                memcpy(&offset, base + position + 8, 8)
                if offset > above:
                    found = True
                    break
            position += 8
    if not found:
        position = offset = -1
    return position, offset
