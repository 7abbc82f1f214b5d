"""Events on their way out of the log and into it, many at a time: as frames for subscribers and bridges, and back."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.big_endian cimport put_big_endian
from echomesh.native.log_msgpack cimport IS_INT, big16, big32, read_array, read_count, read_value, value_t
from echomesh.native.log_pieces cimport Pieces
from echomesh.native.log_record cimport HEADER, ORIGIN, Records
from echomesh.native.mesh_event cimport event_at

cdef enum:
    MOST_EVENTS = 0xFFFF
    LENGTH_BYTES = 4
    FIELDS = 8                  # of a message, of which the third is the command and the last the body
    SHEET_BYTES = 1 << 20
    SHEETS = 4                  # that wait to be used again

cdef bytes NAME = b"\xabCloudEvents"


cdef const char *event_of(Records records, Py_ssize_t i, int64_t *size) noexcept:
    cdef const char *record = records.base + records.starts[i]
    cdef uint32_t length
    cdef uint16_t flags
    cdef int64_t skip
    memcpy(&length, record, 4)
    memcpy(&flags, record + 24, 2)
    skip = HEADER + (ORIGIN if flags else 0)
    size[0] = length - skip
    return record + skip


cdef char *unused[SHEETS]
cdef int unused_count = 0


cdef class Sheet:
    """Memory for one large frame. What a frame left is taken for one of the next: fresh memory costs a page fault for every
    4 KiB, and what was sent a moment ago is still in the processor's cache.
    """

    cdef char *memory
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        global unused_count
        if not 0 <= size <= SHEET_BYTES:
            raise ValueError(size)
        self.size = size
        if unused_count:
            unused_count -= 1
            self.memory = unused[unused_count]
        else:
            self.memory = <char *>malloc(SHEET_BYTES)
        if self.memory == NULL:
            raise MemoryError

    def __dealloc__(self):
        global unused_count
        if self.memory != NULL and unused_count < SHEETS:
            unused[unused_count] = self.memory
            unused_count += 1
        else:
            free(self.memory)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.size, True, flags)


def events_frame(bytes head not None, Records records not None, Py_ssize_t first, Py_ssize_t end, bint lent=False):
    """The frame of a message that begins with `head` and ends with `CloudEvents`: these of the records, as they are.

    With `lent` it may be a view of memory that is used again once nobody has the view: for frames of which few are on their
    way at a time.
    """
    cdef Py_ssize_t i
    cdef int array = 1 if end - first < 16 else 3      # bytes that say how many there are
    cdef int64_t size = 0, total = PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(NAME) + array
    cdef const char *event
    cdef object made
    cdef Sheet sheet
    cdef uint8_t *p
    if not 0 <= first <= end <= records.count or end - first > MOST_EVENTS:
        raise IndexError((first, end))
    for i in range(first, end):
        event_of(records, i, &size)
        total += size
    if total > 0xFFFFFFFF:
        raise OverflowError(total)
    if lent and LENGTH_BYTES + total <= SHEET_BYTES:
        sheet = Sheet(LENGTH_BYTES + total)
        p = <uint8_t *>sheet.memory
        made = memoryview(sheet)
    else:
        made = PyBytes_FromStringAndSize(NULL, LENGTH_BYTES + total)
        p = <uint8_t *>PyBytes_AS_STRING(made)
    put_big_endian(p, total, LENGTH_BYTES)
    p += LENGTH_BYTES
    memcpy(p, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    p += PyBytes_GET_SIZE(head)
    memcpy(p, PyBytes_AS_STRING(NAME), PyBytes_GET_SIZE(NAME))
    p += PyBytes_GET_SIZE(NAME)
    if array == 1:
        p[0] = <uint8_t>(0x90 | (end - first))
    else:
        p[0] = 0xDC
        put_big_endian(p + 1, end - first, 2)
    p += array
    for i in range(first, end):
        event = event_of(records, i, &size)
        memcpy(p, event, size)
        p += size
    return made


cdef const uint8_t *skip_rare(const uint8_t *p, const uint8_t *end) noexcept nogil:
    # nil, floats, and extension types that no event has.
    cdef int64_t left = end - p, size
    if left < 1:
        return NULL
    if p[0] == 0xC0:
        size = 1
    elif p[0] == 0xCA or p[0] == 0xCB:
        size = 5 if p[0] == 0xCA else 9
    elif 0xD4 <= p[0] <= 0xD8:
        size = 2 + (1 << (p[0] - 0xD4))
    elif p[0] == 0xC7 and left >= 2:
        size = 3 + <int64_t>p[1]
    elif p[0] == 0xC8 and left >= 3:
        size = 4 + <int64_t>big16(p + 1)
    elif p[0] == 0xC9 and left >= 5:
        size = 6 + <int64_t>big32(p + 1)
    else:
        return NULL
    return p + size if size <= left else NULL


cdef const uint8_t *skip_value(const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Behind the value at p, whatever it is; NULL when it is not whole.
    cdef value_t v
    cdef const uint8_t *next
    cdef int64_t left = 1, count = 0
    while left > 0:
        left -= 1
        next = read_count(p, end, &count)
        if next != NULL:
            left += 2 * count
        else:
            next = read_array(p, end, &count)
            if next != NULL:
                left += count
            else:
                next = read_value(p, end, &v)
                if next == NULL:
                    next = skip_rare(p, end)
        if next == NULL or left > end - next:
            return NULL     # each value has a byte at least
        p = next
    return p


def events_at(const uint8_t[::1] payload not None, int64_t command) -> int:
    """Where the value of `CloudEvents` begins in a message of this command, if that is the last entry of its body; else 0."""
    cdef const uint8_t *begin = &payload[0] if payload.shape[0] else NULL
    cdef const uint8_t *p = begin
    cdef const uint8_t *end = p + payload.shape[0]
    cdef value_t v
    cdef int64_t count = 0, i
    p = read_array(p, end, &count)
    if p == NULL or count != FIELDS:
        return 0
    for i in range(FIELDS - 1):
        if i == 2:
            p = read_value(p, end, &v)
            if p == NULL or v.kind != IS_INT or v.number != command:
                return 0
        else:
            p = skip_value(p, end)
            if p == NULL:
                return 0
    p = read_count(p, end, &count)
    for i in range(count if p != NULL else 0):
        if end - p > PyBytes_GET_SIZE(NAME) and memcmp(p, PyBytes_AS_STRING(NAME), PyBytes_GET_SIZE(NAME)) == 0:
            return p - begin + PyBytes_GET_SIZE(NAME) if i == count - 1 else 0
        p = skip_value(p, end)
        if p != NULL:
            p = skip_value(p, end)
        if p == NULL:
            return 0
    return 0


def arrived(raw not None) -> tuple:
    """(events, doubtful) of the bytes of an array of events: where they are, and the numbers of those that are not known
    to be good. None when it is no array.
    """
    cdef Pieces events = Pieces.__new__(Pieces)
    cdef const uint8_t[::1] data = raw
    cdef const uint8_t *p = &data[0] if data.shape[0] else NULL
    cdef const uint8_t *end = p + data.shape[0]
    cdef const uint8_t *begin = p
    cdef const uint8_t *next = NULL
    cdef list doubtful = []
    cdef int64_t count = 0, i
    events.owner = data
    events.base = <const char *>p
    p = read_array(p, end, &count)
    if p == NULL:
        return None
    events.add(p - begin)
    for i in range(count):
        next = event_at(p, end, False)
        if next == NULL:
            next = skip_value(p, end)
            if next == NULL:
                return None
            doubtful.append(i)
        p = next
        events.add(p - begin)
    return (events, doubtful) if p == end else None


def origin_of_event(bytes log_id not None, int64_t offset) -> bytes:
    """The origin of the event that was first published at this offset of that log."""
    cdef char origin[ORIGIN]
    if PyBytes_GET_SIZE(log_id) != 16:
        raise ValueError("16 bytes of a log id")
    memcpy(origin, PyBytes_AS_STRING(log_id), 16)
    memcpy(origin + 16, &offset, 8)
    return PyBytes_FromStringAndSize(origin, ORIGIN)


def runs(Records records not None, bytes peer not None) -> list:
    """(first, end, origin, theirs) of the records that can go in one message: one behind the other, of one origin.

    `origin` is the first one's, None for those published here. `theirs` are those that are not for the server whose log
    is `peer`: its own, and those that are for this server alone.
    """
    cdef list found = []
    cdef Py_ssize_t i, first = 0
    cdef const char *origin = NULL
    cdef const char *before = NULL
    cdef bint theirs = False, was_theirs = False
    if PyBytes_GET_SIZE(peer) != 16:
        raise ValueError("16 bytes of a log id")
    for i in range(records.count):
        origin = origin_of(records, i)
        theirs = origin != NULL and (
            memcmp(origin, PyBytes_AS_STRING(peer), 16) == 0 or memcmp(origin, HERE, ORIGIN) == 0
        )
        if i > 0 and (theirs != was_theirs or not (theirs or follows(before, origin))):
            found.append(run(records, first, i, was_theirs))
            first = i
        before, was_theirs = origin, theirs
    if records.count:
        found.append(run(records, first, records.count, was_theirs))
    return found


def consecutive(list offsets not None, int64_t first) -> bool:
    """Whether the offsets count on from the first."""
    cdef Py_ssize_t i
    for i in range(len(offsets)):
        if <int64_t>offsets[i] != first + i:
            return False
    return True


cdef char HERE[ORIGIN]
memset(HERE, 0, ORIGIN)


cdef const char *origin_of(Records records, Py_ssize_t i) noexcept:
    cdef const char *record = records.base + records.starts[i]
    cdef uint16_t flags
    memcpy(&flags, record + 24, 2)
    return record + HEADER if flags else NULL


cdef bint follows(const char *before, const char *origin) noexcept:
    # Whether the second is the next one of the same origin.
    cdef int64_t one, other
    if before == NULL or origin == NULL:
        return before == origin
    memcpy(&one, before + 16, 8)
    memcpy(&other, origin + 16, 8)
    return other == one + 1 and memcmp(before, origin, 16) == 0


cdef tuple run(Records records, Py_ssize_t first, Py_ssize_t end, bint theirs):
    cdef const char *origin = origin_of(records, first)
    return first, end, None if origin == NULL else PyBytes_FromStringAndSize(origin, ORIGIN), theirs
