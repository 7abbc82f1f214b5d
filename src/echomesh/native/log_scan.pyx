"""From records to the buffers of Arrow columns, with no Python object for an event."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.log_blocks cimport SLACK, grow, push
from echomesh.native.log_msgpack cimport (
    IS_BIN, IS_BOOL, IS_INT, IS_STR, IS_TIME, ISO_BYTES, base64_size, parse_time, read_count, read_value, stamp_us,
    text_ok, utf8_ok, value_t, write_base64, write_int, write_iso,
)
from echomesh.native.log_columns cimport (
    ATTRIBUTES, DATA, DATACONTENTTYPE, DATASCHEMA, ID, OFFSET, SOURCE, SUBJECT, TIME, TIMESTAMP, TOPIC, TYPE, Columns,
)
from echomesh.native.log_record cimport HEADER, ORIGIN, Records

TIME_COLUMN, SOURCE_COLUMN, DATACONTENTTYPE_COLUMN, DATASCHEMA_COLUMN, WHOLE = (
    TIME, SOURCE, DATACONTENTTYPE, DATASCHEMA, ENTIRE)

cdef enum:
    MAX_ATTRIBUTES = 255
    # What became of an event.
    GOOD = 0
    NO_EVENT = 1
    NO_MEMORY = 2

cdef enum:
    REQUIRED = 1 << SPECVERSION | 1 << ID | 1 << SOURCE | 1 << TYPE
    OF_EVENT = ~(1 << TOPIC | 1 << OFFSET | 1 << TIMESTAMP) & 0xFFF
    OFTEN_SAME = 1 << SPECVERSION | 1 << SOURCE | 1 << TYPE | 1 << DATACONTENTTYPE | 1 << DATASCHEMA


cdef inline bint same(const uint8_t *p, const uint8_t *q, int64_t n) noexcept nogil:
    # Whether n bytes are equal, of which there are more: a call would take longer for so few.
    cdef uint64_t x, y
    while n >= 8:
        memcpy(&x, p, 8)
        memcpy(&y, q, 8)
        if x != y:
            return False
        p += 8
        q += 8
        n -= 8
    if n == 0:
        return True
    memcpy(&x, p, 8)
    memcpy(&y, q, 8)
    return (x ^ y) << (64 - 8 * n) == 0


cdef class Scanner(Columns):
    """Builds columns from records, batch after batch. `judge(column, value)` decides what compiled code does not: it
    raises for a value that breaks the standard, and gives a time's microseconds.
    """

    def __cinit__(self, bytes topic not None, wanted, int64_t max_bytes, int64_t max_rows, judge):
        self.judge = judge

    def __dealloc__(self):
        cdef int i
        for i in range(ID, DATA + 1):
            free(self.known[i])

    def add(self, Records records not None, int64_t start) -> int:
        """Takes records from the index `start` on; the index of the first that was not taken.

        That one did not fit any more, or is no event: then `refusal` says so.
        """
        cdef int64_t i = start, count = records.count, size, time_ns, skip
        cdef const uint8_t *record
        cdef uint32_t length
        cdef uint16_t flags
        cdef int state = GOOD
        if start < 0 or start > count:
            raise IndexError(start)
        if self.room == 0:
            try:
                self.start()
            except MemoryError:
                self.drop()
                raise
        if self.rows == 0:
            self.first = records.first + start
        self.refusal = None
        if count == 0:
            return 0
        memcpy(&length, records.base + records.starts[count - 1], 4)
        self.limit = <const uint8_t *>records.base + records.starts[count - 1] + length
        with nogil:
            while i < count and self.rows < self.max_rows:
                if self.rows == self.room and self.reserve() < 0:
                    state = NO_MEMORY
                    break
                record = <const uint8_t *>records.base + records.starts[i]
                memcpy(&length, record, 4)
                memcpy(&time_ns, record + 16, 8)
                memcpy(&flags, record + 24, 2)
                skip = HEADER + (ORIGIN if flags else 0)
                if self.wanted & OF_EVENT:
                    state = self.event(record + skip, length - skip)
                    if state != GOOD:
                        self.undo_row()
                        break
                if not self.finish_row(records.first + i, time_ns, length if self.wanted & OF_EVENT else 0):
                    self.undo_row()
                    break
                i += 1
        if state == NO_MEMORY:
            raise MemoryError
        if isinstance(self.refusal, BaseException) and not isinstance(self.refusal, Exception):
            raise self.refusal
        if state == NO_EVENT and self.refusal is None:
            self.refusal = "it is not the map of a CloudEvent"
        return i

    cdef int event(self, const uint8_t *p, int64_t n) noexcept nogil:
        cdef const uint8_t *end = p + n
        cdef const uint8_t *whole = p
        cdef const uint8_t *key = NULL
        cdef const uint8_t *begin
        cdef const uint8_t *at
        cdef expected_t *before
        cdef int64_t count = 0, extensions = 0, place
        cdef uint32_t seen = 0, bit
        cdef value_t name, v
        cdef int column, state
        self.time_us = 0
        p = read_count(p, end, &count)
        if p == NULL or count > MAX_ATTRIBUTES:
            return NO_EVENT
        for place in range(count):
            # Most events have the attributes of the one before in the same order, and some with the same values.
            before = &self.expected[place] if place < EXPECTED else NULL
            begin = p
            if before != NULL and before.size and end - p >= before.size and self.limit - p >= HEAD + 8 and same(
                    p, before.head, before.size):
                column = before.column
                p += before.size
                if before.value:
                    bit = <uint32_t>1 << column
                    if seen & bit:
                        return NO_EVENT
                    seen |= bit
                    if self.wanted & bit and push(
                            &self.texts[column], begin + before.value, before.size - before.value, self.limit) < 0:
                        return NO_MEMORY
                    continue
                before = NULL
            else:
                p = read_value(p, end, &name)
                if p == NULL or name.kind != IS_STR:
                    return NO_EVENT
                key = name.body
                column = -1
                if name.size == 2:
                    if memcmp(key, b"id", 2) == 0:
                        column = ID
                elif name.size == 4:
                    if memcmp(key, b"type", 4) == 0:
                        column = TYPE
                    elif memcmp(key, b"time", 4) == 0:
                        column = TIME
                    elif memcmp(key, b"data", 4) == 0:
                        column = DATA
                elif name.size == 6:
                    if memcmp(key, b"source", 6) == 0:
                        column = SOURCE
                elif name.size == 7:
                    if memcmp(key, b"subject", 7) == 0:
                        column = SUBJECT
                elif name.size == 10:
                    if memcmp(key, b"dataschema", 10) == 0:
                        column = DATASCHEMA
                elif name.size == 11:
                    if memcmp(key, b"specversion", 11) == 0:
                        column = SPECVERSION
                elif name.size == 15:
                    if memcmp(key, b"datacontenttype", 15) == 0:
                        column = DATACONTENTTYPE
            at = p
            p = read_value(p, end, &v)
            if p == NULL:
                return NO_EVENT
            if column < 0:
                state = self.extension_value(key, name.size, at, p, extensions)
                if state != GOOD:
                    return state
                extensions += 1
                continue
            bit = <uint32_t>1 << column
            if seen & bit:
                return NO_EVENT
            seen |= bit
            if column == SPECVERSION:
                if v.kind != IS_STR or v.size != 3 or memcmp(v.body, b"1.0", 3) != 0:
                    return NO_EVENT
            elif not (self.wanted & bit):
                pass
            elif column == DATA:
                if v.kind != IS_BIN and (v.kind != IS_STR or not utf8_ok(v.body, v.size, False)):
                    return NO_EVENT
                if push(&self.texts[DATA], v.body, v.size, self.limit) < 0:
                    return NO_MEMORY
            elif column == TIME:
                if v.kind == IS_TIME:
                    if not stamp_us(v.body, v.size, &self.time_us):
                        return NO_EVENT
                elif v.kind != IS_STR:
                    return NO_EVENT
                elif not parse_time(v.body, v.size, &self.time_us) and not self.ask(TIME, v.body, v.size):
                    return NO_EVENT
            else:
                if v.kind != IS_STR or v.size == 0:
                    return NO_EVENT
                if column == SOURCE or column == DATACONTENTTYPE or column == DATASCHEMA:
                    if not self.known_value(column, v.body, v.size):
                        return NO_EVENT
                elif not text_ok(v.body, v.size):
                    return NO_EVENT
                if push(&self.texts[column], v.body, v.size, self.limit) < 0:
                    return NO_MEMORY
            if before != NULL:
                self.expect(place, column, begin, at, &v, p)
        self.seen = seen
        if seen & REQUIRED != REQUIRED or p != end or extensions > MAX_ATTRIBUTES - 9:
            return NO_EVENT
        if extensions > MAX_NAMES and not self.ask(ENTIRE, whole, n):
            return NO_EVENT
        return GOOD

    cdef void expect(self, int64_t place, int column, const uint8_t *key, const uint8_t *at, const value_t *v,
                     const uint8_t *end) noexcept nogil:
        # The next event may have the same name there, whose value begins at `at`, and the same value.
        cdef expected_t *e = &self.expected[place]
        e.varies = e.size and e.column == column and (e.varies or e.value)
        e.column = column
        e.value = 0
        e.size = at - key
        if OFTEN_SAME >> column & 1 and v.kind == IS_STR and not e.varies and end - key <= HEAD:
            e.value = v.body - key
            e.size = end - key
        if e.size > HEAD:
            e.size = 0
        else:
            memcpy(e.head, key, e.size)

    cdef int known_value(self, int column, const uint8_t *p, int64_t n) noexcept nogil:
        # URIs and media types have a grammar that Python checks; they are few, and come again and again.
        cdef known_t *slots = self.known[column]
        cdef known_t *slot
        cdef uint32_t mixed = <uint32_t>n, tail = 0
        cdef int i
        if n > KNOWN_BYTES:
            return self.ask(column, p, n)
        if slots == NULL:
            slots = self.known[column] = <known_t *>malloc(KNOWN_SLOTS * sizeof(known_t))
            if slots == NULL:
                return self.ask(column, p, n)
            for i in range(KNOWN_SLOTS):
                slots[i].size = 0
        memcpy(&tail, p + n - 4 if n >= 4 else p, 4 if n >= 4 else n)
        mixed = (tail ^ mixed * <uint32_t>0x85EBCA6B) * <uint32_t>0x9E3779B1
        slot = slots + (mixed >> 24)
        if slot.size == n and memcmp(slot.data, p, n) == 0:
            return 1
        if not self.ask(column, p, n):
            return 0
        slot.size = n
        memcpy(slot.data, p, n)
        return 1

    cdef int extension_value(self, const uint8_t *name, int64_t name_size, const uint8_t *value, const uint8_t *end,
                             int64_t count) noexcept nogil:
        cdef int64_t i, us = 0, size
        cdef uint8_t made[ISO_BYTES]
        cdef value_t v
        cdef const uint8_t *limit = made + ISO_BYTES
        if name_size == 0:
            return NO_EVENT
        for i in range(name_size):
            if not (97 <= name[i] <= 122 or 48 <= name[i] <= 57):
                return NO_EVENT
        if count < MAX_NAMES:
            for i in range(count):
                if self.extension_size[i] == name_size and memcmp(self.extension[i], name, name_size) == 0:
                    return NO_EVENT
            self.extension[count] = name
            self.extension_size[count] = name_size
        if not (self.wanted & 1 << ATTRIBUTES):
            return GOOD
        read_value(value, end, &v)
        memset(made, 0, ISO_BYTES)
        if self.entries + 2 > self.names.offsets_room or self.entries + 2 > self.values.offsets_room:
            if (grow(<void **>&self.names.offsets, &size, (self.entries + 2) * 4) < 0
                    or grow(<void **>&self.values.offsets, &size, (self.entries + 2) * 4) < 0):
                return NO_MEMORY
            self.names.offsets_room = self.values.offsets_room = size // 4
        if v.kind == IS_STR:
            if not text_ok(v.body, v.size):
                return NO_EVENT
            size = push(&self.values, v.body, v.size, self.limit)
        elif v.kind == IS_BOOL:
            memcpy(made, b"true\0" if v.number else b"false", 5)
            size = push(&self.values, made, 4 if v.number else 5, limit)
        elif v.kind == IS_INT:
            if v.number < -(<int64_t>1 << 31) or v.number >= <int64_t>1 << 31:
                return NO_EVENT
            size = push(&self.values, made, write_int(made, v.number), limit)
        elif v.kind == IS_TIME:
            if not stamp_us(v.body, v.size, &us):
                return NO_EVENT
            size = push(&self.values, made, write_iso(made, us), limit)
        else:
            size = base64_size(v.size)
            if self.values.used + size + SLACK > self.values.room and grow(
                    <void **>&self.values.data, &self.values.room, self.values.used + size + SLACK) < 0:
                return NO_MEMORY
            write_base64(self.values.data + self.values.used, v.body, v.size)
            self.values.used += size
            size = 0
        if size < 0 or push(&self.names, name, name_size, self.limit) < 0:
            return NO_MEMORY
        self.entries += 1
        self.names.offsets[self.entries] = <int32_t>self.names.used
        self.values.offsets[self.entries] = <int32_t>self.values.used
        return GOOD

    cdef int ask(self, int kind, const uint8_t *p, int64_t n) noexcept with gil:
        try:
            found = self.judge(kind, PyBytes_FromStringAndSize(<const char *>p, n))
            if kind == TIME:
                self.time_us = found
            return 1
        except BaseException as error:
            self.refusal = error
            return 0
