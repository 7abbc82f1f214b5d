"""The columns of a batch of events: memory that grows by rows, and is handed over as Arrow lays it out."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from echomesh.native.log_blocks cimport SLACK, as_block, column_t, free_column, grow, room_of, take_memory

NAMES = ("topic", "offset", "timestamp", "time", "id", "source", "type", "subject", "datacontenttype", "dataschema",
         "data", "attributes")

cdef enum:
    LEAST_ROWS = 8192
    MOST_GROWTH = 8     # times a record's bytes: a time of six bytes is written with 27 in `attributes`, and has an entry


cdef inline bint may_be_null(int column) noexcept nogil:
    return column >= SUBJECT


cdef int grow_bits(uint8_t **bits, int64_t before, int64_t rows) noexcept nogil:
    cdef int64_t room
    if grow(<void **>bits, &room, rows // 8) < 0:
        return -1
    memset(bits[0] + before // 8, 0, (rows - before) // 8)
    return 0


cdef class Columns:
    """Rows that are added one by one, up to a number of them and of bytes, and taken all at once."""

    def __cinit__(self, bytes topic not None, wanted, int64_t max_bytes, int64_t max_rows, *ignored):
        cdef int i
        self.topic = topic
        self.max_bytes, self.max_rows = max_bytes, max(1, max_rows)
        self.hint = LEAST_ROWS
        for i in wanted:
            self.wanted |= 1 << i
        self.turns = []
        self.topic_bytes = PyBytes_GET_SIZE(topic) + 4 if self.wanted & 1 << TOPIC else 0
        for i in range(OFFSET, ATTRIBUTES + 1):
            if self.wanted & 1 << i:
                self.row_bytes += 8 if i <= TIME else 4
                if ID <= i <= DATA:
                    self.active[self.active_count] = i
                    self.active_count += 1

    def __dealloc__(self):
        self.drop()

    cdef void drop(self) noexcept nogil:
        cdef int i
        for i in range(ID, DATA + 1):
            free_column(&self.texts[i])
        free_column(&self.names)
        free_column(&self.values)
        free(self.offsets)
        free(self.timestamps)
        free(self.times)
        free(self.times_valid)
        free(self.maps)
        self.offsets = self.timestamps = self.times = NULL
        self.times_valid = NULL
        self.maps = NULL
        self.room = 0

    cdef int start(self) except -1:
        # Memory as the last batch needed it.
        cdef int64_t rows = self.hint - 16
        cdef int i
        self.offsets = <int64_t *>self.zeroed(rows * 8, 0)
        self.timestamps = <int64_t *>self.zeroed(rows * 8, 0)
        if self.wanted & 1 << TIME:
            self.times = <int64_t *>self.zeroed(rows * 8, 0)
            self.times_valid = <uint8_t *>self.zeroed(rows // 8, rows // 8)
        for i in self.active[:self.active_count]:
            self.start_text(&self.texts[i], rows + 1)
            if may_be_null(i):
                self.texts[i].valid = <uint8_t *>self.zeroed(rows // 8, rows // 8)
        if self.wanted & 1 << ATTRIBUTES:
            self.maps = <int32_t *>self.zeroed((rows + 1) * 4, 4)
            self.start_text(&self.names, 1)
            self.start_text(&self.values, 1)
        self.bytes = self.spare = self.rows = self.entries = self.times_null = 0
        self.room = rows
        return 0

    cdef int start_text(self, column_t *c, int64_t ends) except -1:
        c.data = <uint8_t *>self.zeroed(c.room, 0)
        c.room = self.got
        c.offsets = <int32_t *>self.zeroed(ends * 4, 4)
        c.offsets_room = self.got // 4
        c.used = c.nulls = 0
        return 0

    cdef void *zeroed(self, int64_t size, int64_t zeros) except NULL:
        cdef void *found = take_memory(size, &self.got)
        if found == NULL:
            raise MemoryError
        memset(found, 0, zeros)
        return found

    cdef int reserve(self) noexcept nogil:
        # Twice as many rows; a few less than a power of two, so that an end more fits into one as well.
        cdef int64_t before = self.room, rows = (before + 16) * 2 - 16, room
        cdef int i, k
        if grow(<void **>&self.offsets, &room, rows * 8) < 0 or grow(<void **>&self.timestamps, &room, rows * 8) < 0:
            return -1
        if self.times != NULL and (grow(<void **>&self.times, &room, rows * 8) < 0
                                   or grow_bits(&self.times_valid, before, rows) < 0):
            return -1
        if self.maps != NULL and grow(<void **>&self.maps, &room, (rows + 1) * 4) < 0:
            return -1
        for k in range(self.active_count):
            i = self.active[k]
            if grow(<void **>&self.texts[i].offsets, &room, (rows + 1) * 4) < 0:
                return -1
            if may_be_null(i) and grow_bits(&self.texts[i].valid, before, rows) < 0:
                return -1
        self.room = rows
        return 0

    @property
    def full(self) -> bool:
        """Whether no more rows should be added: the next one, or most that could come, do not fit."""
        return self.rows >= self.max_rows or self.bytes >= self.max_bytes

    def turn(self, bytes topic not None) -> None:
        """The rows that come now are of this topic."""
        cdef int64_t before = self.topic_bytes
        if topic == self.topic:
            return
        if self.rows:
            self.turns.append((self.rows, self.topic))
        self.topic = topic
        if before:
            self.topic_bytes = PyBytes_GET_SIZE(topic) + 4
            self.before_bytes += self.rows * (before - self.topic_bytes)

    cdef int64_t measured(self) noexcept nogil:
        # The bytes of all rows and of the one that is being added.
        cdef int64_t found = (self.row_bytes + self.topic_bytes) * (self.rows + 1) + self.before_bytes
        cdef int k
        for k in range(self.active_count):
            found += self.texts[self.active[k]].used
        if self.maps != NULL:
            found += self.names.used + self.values.used + self.entries * 8
        return found

    cdef int finish_row(self, int64_t offset, int64_t time_ns, int64_t size) noexcept nogil:
        # Of a record of so many bytes; 0 when the row would be one too many.
        cdef int64_t n = self.rows
        cdef int i, k
        cdef column_t *c
        self.spare -= self.row_bytes + self.topic_bytes + MOST_GROWTH * size
        if self.spare < 0:
            self.bytes = self.measured()
            self.spare = self.max_bytes - self.bytes
            if n and self.spare < 0:
                self.bytes = self.max_bytes
                return 0
        for k in range(self.active_count):
            i = self.active[k]
            c = &self.texts[i]
            c.offsets[n + 1] = <int32_t>c.used
            if may_be_null(i):
                c.valid[n >> 3] |= (self.seen >> i & 1) << (n & 7)
                c.nulls += not (self.seen >> i & 1)
        if self.times != NULL:
            self.times_valid[n >> 3] |= (self.seen >> TIME & 1) << (n & 7)
            self.times_null += not (self.seen >> TIME & 1)
            self.times[n] = self.time_us
        if self.maps != NULL:
            self.maps[n + 1] = <int32_t>self.entries
        self.offsets[n] = offset
        self.timestamps[n] = time_ns // 1000 - (time_ns % 1000 < 0)
        self.rows = n + 1
        return 1

    cdef void undo_row(self) noexcept nogil:
        cdef int i, k
        for k in range(self.active_count):
            i = self.active[k]
            self.texts[i].used = self.texts[i].offsets[self.rows]
        if self.maps != NULL:
            self.entries = self.maps[self.rows]
            self.names.used = self.names.offsets[self.entries]
            self.values.used = self.values.offsets[self.entries]

    def take(self) -> tuple:
        """(rows, buffers of each wanted column by its number) of the batch, as Arrow lays them out; begins a new one."""
        cdef dict found = {}
        cdef int i, k
        cdef int64_t rows = self.rows, room = self.room
        if rows == 0:
            return 0, found
        if self.wanted & 1 << TOPIC:
            found[TOPIC] = self.topics()
        if self.wanted & 1 << OFFSET:
            found[OFFSET] = (None, as_block(self.offsets, rows * 8, room_of(room * 8)))
            self.offsets = NULL
        if self.wanted & 1 << TIMESTAMP:
            found[TIMESTAMP] = (None, as_block(self.timestamps, rows * 8, room_of(room * 8)))
            self.timestamps = NULL
        if self.times != NULL:
            found[TIME] = (
                self.bits(&self.times_valid, self.times_null), as_block(self.times, rows * 8, room_of(room * 8)))
            self.times = NULL
        for k in range(self.active_count):
            i = self.active[k]
            valid = self.bits(&self.texts[i].valid, self.texts[i].nulls) if may_be_null(i) else None
            found[i] = (valid, *self.text(&self.texts[i], rows, (room + 1) * 4))
        if self.maps != NULL:
            found[ATTRIBUTES] = (
                None, as_block(self.maps, (rows + 1) * 4, room_of((room + 1) * 4)), self.entries,
                self.text(&self.names, self.entries, self.names.offsets_room * 4),
                self.text(&self.values, self.entries, self.names.offsets_room * 4))
            self.maps = NULL
        self.hint = LEAST_ROWS
        while self.hint < rows + 16:
            self.hint *= 2
        self.drop()
        self.rows = self.bytes = self.before_bytes = 0
        self.turns.clear()
        return rows, found

    cdef object bits(self, uint8_t **bits, int64_t nulls):
        if nulls == 0:
            return None
        found = as_block(bits[0], (self.rows + 7) // 8, room_of(self.room // 8))
        bits[0] = NULL
        return found

    cdef tuple text(self, column_t *c, int64_t count, int64_t offsets_bytes):
        found = (as_block(c.offsets, (count + 1) * 4, room_of(offsets_bytes)), as_block(c.data, c.used, c.room))
        c.offsets = NULL
        c.data = NULL
        c.room = c.used + c.used // 8 + SLACK
        return found

    cdef tuple topics(self):
        # The same name in every row of a turn.
        cdef int64_t rows = self.rows, total = 0, start = 0, room, offsets_room
        cdef int64_t stop
        cdef bytes name
        cdef list turns = [*self.turns, (rows, self.topic)]
        for stop, name in turns:
            total += (stop - start) * PyBytes_GET_SIZE(name)
            start = stop
        cdef uint8_t *data = <uint8_t *>take_memory(total, &room)
        cdef int32_t *offsets = <int32_t *>take_memory((rows + 1) * 4, &offsets_room)
        found = (None, as_block(offsets, (rows + 1) * 4, offsets_room), as_block(data, total, room))
        if data == NULL or offsets == NULL:
            raise MemoryError
        offsets[0] = 0
        start = 0
        for stop, name in turns:
            repeat(data + offsets[start], offsets + start, stop - start, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            start = stop
        return found


cdef void repeat(uint8_t *data, int32_t *ends, int64_t rows, const char *text, int64_t size) noexcept nogil:
    # The text so many times, and where each of them ends.
    cdef int64_t i, filled = size, whole = rows * size
    for i in range(rows):
        ends[i + 1] = <int32_t>(ends[0] + (i + 1) * size)
    if rows == 0:
        return
    memcpy(data, text, size)
    while filled < whole:
        i = min(filled, whole - filled)
        memcpy(data + filled, data, i)
        filled += i
