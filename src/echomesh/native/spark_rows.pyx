"""Arrow columns to the rows of a stage: events as they are stored, without a Python object for each."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from echomesh.native.log_record cimport HEADER, MAX_RECORD, padded
from echomesh.native.log_sums cimport em_crc32c, em_crc_setup

em_crc_setup()

NAMES = ("topic", "id", "source", "type", "subject", "datacontenttype", "dataschema", "time", "data", "attributes")

cdef enum:
    TOPIC = 0
    ID = 1
    SOURCE = 2
    TYPE = 3
    SUBJECT = 4
    DATASCHEMA = 6
    TIME = 7
    DATA = 8
    ATTRIBUTES = 9
    COLUMNS = 10
    NAMES_BYTES = 160       # of all names and the map's header, with room to spare

ctypedef struct column_t:
    bint there
    bint text               # str and not bin, for the data
    int64_t offset          # of the array within its buffers
    const uint8_t *valid    # a bit for each row, NULL when all are there
    const int32_t *ends
    const uint8_t *body     # bytes of texts, int64 of times

ctypedef struct piece_t:
    const uint8_t *at
    int64_t size


cdef const char *LABELS[COLUMNS]
LABELS[ID] = b"\xa2id"
LABELS[SOURCE] = b"\xa6source"
LABELS[TYPE] = b"\xa4type"
LABELS[SUBJECT] = b"\xa7subject"
LABELS[SUBJECT + 1] = b"\xafdatacontenttype"
LABELS[DATASCHEMA] = b"\xaadataschema"
LABELS[TIME] = b"\xa4time"
LABELS[DATA] = b"\xa4data"


cdef inline bint is_there(column_t *c, int64_t row) noexcept nogil:
    cdef int64_t i = row + c.offset
    return c.there and (c.valid == NULL or c.valid[i >> 3] >> (i & 7) & 1)


cdef inline piece_t piece_of(column_t *c, int64_t row) noexcept nogil:
    cdef piece_t found
    cdef int64_t i = row + c.offset
    found.at = c.body + c.ends[i]
    found.size = c.ends[i + 1] - c.ends[i]
    return found


cdef inline char *put_label(char *p, int which) noexcept nogil:
    cdef int size = (<const uint8_t *>LABELS[which])[0] & 31
    memcpy(p, LABELS[which], size + 1)
    return p + size + 1


cdef inline char *put_big(char *p, int first, uint64_t value, int size) noexcept nogil:
    cdef int i
    p[0] = <char>first
    for i in range(size):
        p[1 + i] = <char>(value >> 8 * (size - 1 - i) & 0xFF)
    return p + 1 + size


cdef inline char *put_text(char *p, const uint8_t *at, int64_t size) noexcept nogil:
    if size < 32:
        p[0] = <char>(0xA0 | size)
        p += 1
    elif size < 256:
        p = put_big(p, 0xD9, size, 1)
    elif size < 65536:
        p = put_big(p, 0xDA, size, 2)
    else:
        p = put_big(p, 0xDB, size, 4)
    memcpy(p, at, size)
    return p + size


cdef inline char *put_bytes(char *p, const uint8_t *at, int64_t size) noexcept nogil:
    if size < 256:
        p = put_big(p, 0xC4, size, 1)
    elif size < 65536:
        p = put_big(p, 0xC5, size, 2)
    else:
        p = put_big(p, 0xC6, size, 4)
    memcpy(p, at, size)
    return p + size


cdef inline char *put_eight(char *p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <char>(value >> 8 * (7 - i) & 0xFF)
    return p + 8


cdef inline char *put_time(char *p, int64_t us) noexcept nogil:
    cdef int64_t seconds = us // 1000000, rest = us % 1000000
    if rest < 0:
        rest += 1000000
        seconds -= 1
    if seconds >> 34 == 0:
        p[0] = <char>0xD7
        return put_big(p + 1, 0xFF, <uint64_t>(rest * 1000) << 34 | <uint64_t>seconds, 8)
    p[0], p[1] = <char>0xC7, 12
    p = put_big(p + 2, 0xFF, rest * 1000, 4)
    return put_eight(p, <uint64_t>seconds)


cdef class RowEncoder:
    """Takes batches of columns, and gives blocks of rows that are numbered on from 1.

    `new_topic` is called with the UTF-8 of each topic that comes for the first time, and gives its number; a text that is
    no topic raises there. Rows without an id get `prefix` and their place; without source and type, those given here.
    """

    cdef readonly int64_t rows
    cdef int64_t before     # rows of earlier stages
    cdef object new_topic
    cdef dict numbers
    cdef bytes prefix, source, type, last_topic
    cdef int64_t last_number
    cdef char *buffer
    cdef int64_t size, room
    cdef column_t columns[COLUMNS]
    cdef column_t keys, values

    def __init__(self, new_topic, bytes prefix not None, bytes source not None, bytes type not None):
        self.new_topic = new_topic
        self.numbers = {}
        self.prefix, self.source, self.type = prefix, source, type
        self.last_topic = None

    def __dealloc__(self):
        free(self.buffer)

    @property
    def waiting(self) -> int:
        """Bytes that `take` would give."""
        return self.size

    def take(self) -> bytes:
        """The rows that were added since the last time."""
        cdef bytes made = PyBytes_FromStringAndSize(self.buffer, self.size)
        self.size = 0
        return made

    def restart(self) -> None:
        """The next row is the first of another stage."""
        self.before = self.rows

    def add(self, columns, int64_t start, int64_t stop, int64_t most) -> int:
        """Adds rows from `start` on, up to before `stop` or until `most` bytes wait; where to go on.

        `columns` are (name, is text, offset, addresses of validity, offsets and bytes), for `attributes` twice: its keys
        and values, behind their map.
        """
        cdef int64_t row = start
        self.take_columns(columns)
        while row < stop and self.size < most:
            self.add_row(row)
            row += 1
        return row

    cdef int take_columns(self, columns) except -1:
        cdef column_t *c
        memset(self.columns, 0, sizeof(self.columns))
        for name, text, offset, valid, ends, body in columns:
            c = &self.keys if name == "keys" else &self.values if name == "values" else &self.columns[NAMES.index(name)]
            c.there, c.text, c.offset = True, text, offset
            c.valid = <const uint8_t *><size_t>valid
            c.ends = <const int32_t *><size_t>ends
            c.body = <const uint8_t *><size_t>body
        return 0

    cdef int64_t topic_of(self, int64_t row) except -1:
        cdef piece_t text
        if not self.columns[TOPIC].there:
            return 0
        if not is_there(&self.columns[TOPIC], row):
            raise ValueError("a row has no topic: the column is null")
        text = piece_of(&self.columns[TOPIC], row)
        if self.last_topic is not None and text.size == PyBytes_GET_SIZE(self.last_topic) and \
                memcmp(text.at, PyBytes_AS_STRING(self.last_topic), text.size) == 0:
            return self.last_number
        self.last_topic = PyBytes_FromStringAndSize(<const char *>text.at, text.size)
        number = self.numbers.get(self.last_topic)
        if number is None:
            number = self.new_topic(self.last_topic)
            self.numbers[self.last_topic] = number
        self.last_number = number
        return self.last_number

    cdef int64_t attribute_bytes(self, int64_t row) noexcept nogil:
        cdef column_t *c = &self.columns[ATTRIBUTES]
        cdef int64_t i, first = c.ends[row + c.offset], last = c.ends[row + c.offset + 1], size = 0
        for i in range(first, last):
            size += piece_of(&self.keys, i).size + 10
            if is_there(&self.values, i):
                size += piece_of(&self.values, i).size
        return size

    cdef int64_t most_bytes(self, int64_t row) noexcept:
        # What the row takes at the most.
        cdef int64_t size = HEADER + NAMES_BYTES + 16, which
        cdef column_t *c
        size += PyBytes_GET_SIZE(self.prefix) + 20 + PyBytes_GET_SIZE(self.source) + PyBytes_GET_SIZE(self.type)
        for which in range(ID, ATTRIBUTES):
            c = &self.columns[which]
            if is_there(c, row) and which != TIME:
                size += piece_of(c, row).size + 5
        if is_there(&self.columns[ATTRIBUTES], row):
            size += self.attribute_bytes(row)
        return size

    cdef int reserve(self, int64_t needed) except -1:
        cdef int64_t room
        cdef char *grown
        if needed > MAX_RECORD:
            raise ValueError(f"a row of {needed} bytes is over the limit of {MAX_RECORD}")
        if self.size + needed + 8 > self.room:
            room = max(self.size + needed + 8, self.room * 2, 1 << 16)
            grown = <char *>realloc(self.buffer, room)
            if grown == NULL:
                raise MemoryError
            self.buffer, self.room = grown, room
        return 0

    cdef int add_row(self, int64_t row) except -1:
        cdef int64_t topic = self.topic_of(row), number = self.rows - self.before + 1
        cdef char *record
        cdef char *end
        cdef uint32_t length, crc
        self.reserve(self.most_bytes(row))
        record = self.buffer + self.size
        end = self.put_event(record + HEADER, row)
        length = <uint32_t>(end - record)
        memcpy(record, &length, 4)
        memcpy(record + 8, &number, 8)
        memcpy(record + 16, &topic, 8)
        memset(record + 24, 0, 4)
        memset(end, 0, padded(length) - length)
        crc = em_crc32c(em_crc32c(0, record, 4), record + 8, length - 8)
        memcpy(record + 4, &crc, 4)
        self.size += padded(length)
        self.rows += 1
        return 0

    cdef char *put_event(self, char *start, int64_t row) noexcept:
        cdef char *p = start + 3    # the map's header may take three bytes
        cdef int64_t count = 1, which
        cdef piece_t text
        cdef column_t *c
        memcpy(p, b"\xabspecversion\xa31.0", 16)
        p = self.put_id(p + 16, row)
        p = self.put_or(p, SOURCE, row, self.source)
        p = self.put_or(p, TYPE, row, self.type)
        count += 3
        for which in range(SUBJECT, TIME):
            c = &self.columns[which]
            if is_there(c, row):
                text = piece_of(c, row)
                p = put_text(put_label(p, which), text.at, text.size)
                count += 1
        c = &self.columns[TIME]
        if is_there(c, row):
            p = put_time(put_label(p, TIME), (<const int64_t *>c.body)[row + c.offset])
            count += 1
        if is_there(&self.columns[ATTRIBUTES], row):
            p = self.put_attributes(p, row, &count)
        c = &self.columns[DATA]
        if is_there(c, row):
            text = piece_of(c, row)
            p = put_label(p, DATA)
            p = put_text(p, text.at, text.size) if c.text else put_bytes(p, text.at, text.size)
            count += 1
        if count < 16:
            # Most have few attributes: the bytes move by two.
            start[0] = <char>(0x80 | count)
            memmove(start + 1, start + 3, p - start - 3)
            return p - 2
        put_big(start, 0xDE, count, 2)
        return p

    cdef char *put_id(self, char *p, int64_t row) noexcept:
        cdef char digits[20]
        cdef int64_t left = self.rows, size = PyBytes_GET_SIZE(self.prefix), first = 20
        cdef piece_t text
        cdef char *q
        p = put_label(p, ID)
        if is_there(&self.columns[ID], row):
            text = piece_of(&self.columns[ID], row)
            return put_text(p, text.at, text.size)
        while True:
            first -= 1
            digits[first] = <char>(48 + left % 10)
            left //= 10
            if left == 0:
                break
        q = put_big(p, 0xDA, size + 20 - first, 2)
        memcpy(q, PyBytes_AS_STRING(self.prefix), size)
        memcpy(q + size, digits + first, 20 - first)
        return q + size + 20 - first

    cdef char *put_or(self, char *p, int which, int64_t row, bytes otherwise) noexcept:
        cdef piece_t text
        p = put_label(p, which)
        if is_there(&self.columns[which], row):
            text = piece_of(&self.columns[which], row)
            return put_text(p, text.at, text.size)
        return put_text(p, <const uint8_t *>PyBytes_AS_STRING(otherwise), PyBytes_GET_SIZE(otherwise))

    cdef char *put_attributes(self, char *p, int64_t row, int64_t *count) noexcept nogil:
        cdef column_t *c = &self.columns[ATTRIBUTES]
        cdef int64_t i
        cdef piece_t text
        for i in range(c.ends[row + c.offset], c.ends[row + c.offset + 1]):
            if is_there(&self.values, i):
                text = piece_of(&self.keys, i)
                p = put_text(p, text.at, text.size)
                text = piece_of(&self.values, i)
                p = put_text(p, text.at, text.size)
                count[0] += 1
        return p
