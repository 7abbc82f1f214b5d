"""The rows of stages: checked as they come in, counted for their topics, and turned into records of segments.

A row is a record whose offset is its number in the stage, from 1 on, and whose time is the number of its topic there.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from echomesh.native.log_record cimport (
    HEADER, MAX_RECORD, RECORD_GOOD, Records, check_record, padded, record_size, renumber, write_record,
)
from echomesh.native.log_window cimport Window
from echomesh.native.mesh_event cimport event_at


cdef inline uint32_t length_at(const char *at) noexcept nogil:
    cdef uint32_t length
    memcpy(&length, at, 4)
    return length


def count_rows(const uint8_t[::1] rows) -> int:
    """How many rows these bytes claim to be; -1 when they can't be rows. Nothing else is looked at."""
    cdef const char *base
    cdef int64_t size = rows.shape[0], position = 0, count = 0
    cdef uint32_t length
    if size == 0:
        return 0
    base = <const char *>&rows[0]
    with nogil:
        while position + HEADER <= size:
            length = length_at(base + position)
            if length < HEADER or length > MAX_RECORD:
                break
            position += padded(length)
            count += 1
    return count if position == size else -1


def check_rows(const uint8_t[::1] rows, int64_t first, int64_t topics, judge) -> int:
    """How many rows these are, the first with the number `first`, all for one of so many topics.

    ValueError for what is no row. Events that are not known to be good are given to `judge`, who raises if they are not.
    """
    cdef const char *base
    cdef const char *at
    cdef const uint8_t *event
    cdef const uint8_t *end
    cdef int64_t size = rows.shape[0], position = 0, row = first, topic
    cdef uint16_t flags
    if size == 0:
        return 0
    base = <const char *>&rows[0]
    while position < size:
        at = base + position
        if check_record(at, size - position, row) != RECORD_GOOD:
            raise ValueError(f"row {row} is no row: it is cut off, damaged, or not the next one")
        memcpy(&topic, at + 16, 8)
        memcpy(&flags, at + 24, 2)
        if flags or not 0 <= topic < topics:
            raise ValueError(f"row {row} names topic {topic} of {topics}, or an origin")
        event = <const uint8_t *>at + HEADER
        end = <const uint8_t *>at + length_at(at)
        if event_at(event, end, False) != end:
            judge(PyBytes_FromStringAndSize(<const char *>event, end - event))
        position += padded(length_at(at))
        row += 1
    return row - first


def as_records(const uint8_t[::1] rows, int64_t shift, int64_t time_ns, bint search) -> tuple:
    """Rows of a stage with one topic as records of a segment: `shift` is added to their numbers, and all have this time.

    What is no row stays as it is, and with it all that follows; with `search` rows behind it are found again. Gives the
    records, and how far they are good.
    """
    cdef int64_t size = rows.shape[0], at = 0, good = -1, number, topic
    cdef bytes made = PyBytes_FromStringAndSize(<const char *>&rows[0] if size else NULL, size)
    cdef char *base = made
    with nogil:
        while at + HEADER <= size:
            memcpy(&topic, base + at + 16, 8)
            if topic == 0 and check_record(base + at, size - at, -1) == RECORD_GOOD:
                memcpy(&number, base + at + 8, 8)
                renumber(base + at, number + shift, time_ns)
                at += padded(length_at(base + at))
            elif search:
                good = at if good < 0 else good
                at += 8
            else:
                break
    return made, at if good < 0 else good


def mark_rows(Records records not None, int64_t position, int64_t mark, int64_t step, list marks not None) -> int:
    """Adds (offset, position) of a record in each `step` bytes, from the position `mark` on; where the next one is due.

    `position` is that of the records' buffer in the file.
    """
    cdef Py_ssize_t i
    cdef int64_t at
    for i in range(records.count):
        at = position + records.starts[i]
        if at >= mark:
            marks.append((records.first + i, at))
            mark = at + step
    return mark


def mark_block(const uint8_t[::1] rows, int64_t number, int64_t position, int64_t mark, int64_t step,
               list marks not None) -> int:
    """The same for rows that were checked, as they stand one behind the other: the first has this number."""
    cdef int64_t at = 0, size = rows.shape[0]
    cdef const char *base = <const char *>&rows[0] if size else NULL
    while at + HEADER <= size and length_at(base + at) >= HEADER:
        if position + at >= mark:
            marks.append((number, position + at))
            mark = position + at + step
        at += padded(length_at(base + at))
        number += 1
    return mark


cdef class Layout:
    """The rows that a commit has for one topic: how many, and how they fill segments of their own."""

    cdef readonly int64_t count, bytes
    cdef int64_t limit, piece_rows, piece_bytes
    cdef list full
    cdef Window window
    cdef int64_t now

    def __init__(self, int64_t limit, Window window, int64_t now):
        self.limit = limit
        self.window = window
        self.now = now
        self.full = []

    @property
    def pieces(self) -> list:
        """Rows and bytes of each segment."""
        return self.full + ([(self.piece_rows, self.piece_bytes)] if self.piece_rows else [])

    cdef int add(self, const char *event, int64_t event_size) except -1:
        cdef int64_t size = padded(record_size(event_size, False))
        if self.window is not None:
            self.window.take(<const uint8_t *>event, event_size, self.count, self.now)
        self.count += 1
        self.bytes += size
        if self.piece_rows and self.piece_bytes + size > self.limit:
            self.full.append((self.piece_rows, self.piece_bytes))
            self.piece_rows = self.piece_bytes = 0
        self.piece_rows += 1
        self.piece_bytes += size
        return 0


def lay_out(Records records not None, int64_t rows, list layouts not None) -> None:
    """Counts the rows among these records for the layouts of their topics; `rows` is how many the stage has."""
    cdef Py_ssize_t i
    cdef const char *at
    cdef int64_t row, topic, topics = len(layouts)
    for i in range(records.count):
        row = records.first + i
        if not 1 <= row <= rows:
            continue
        at = records.base + records.starts[i]
        memcpy(&topic, at + 16, 8)
        if not 0 <= topic < topics:
            raise ValueError(f"row {row} has no topic")
        (<Layout>layouts[topic]).add(at + HEADER, length_at(at) - HEADER)


cdef class Cursor:
    """Where the next row of a topic goes, and the rows that are not written yet."""

    cdef readonly int64_t number, size
    cdef object runs
    cdef int64_t left, base, position, offset, mark
    cdef char *buffer
    cdef int64_t room

    def __init__(self, int64_t number, runs):
        self.number = number
        self.runs = iter(runs)

    def __dealloc__(self):
        free(self.buffer)

    cdef int put(self, const char *event, int64_t size, int64_t time_ns, int64_t step, list marks) except -1:
        cdef int64_t needed = padded(record_size(size, False)), room
        cdef char *grown
        if self.left == 0:
            self.base, self.position, self.offset, self.left = next(self.runs)
            self.mark = self.position
        if self.size + needed > self.room:
            room = max(self.size + needed, min(self.room * 2, self.room + (1 << 20)), 4096)
            grown = <char *>realloc(self.buffer, room)
            if grown == NULL:
                raise MemoryError
            self.buffer, self.room = grown, room
        if self.position + self.size >= self.mark:
            self.mark = self.position + self.size + step
            marks.append((self.number, self.base, self.offset, self.position + self.size))
        self.size += write_record(self.buffer + self.size, self.offset, time_ns, NULL, event, size)
        self.left -= 1
        self.offset += 1
        return 0

    def take(self) -> tuple:
        """(topic, segment, position, bytes) of what is to be written."""
        cdef int64_t position = self.position
        cdef bytes data = PyBytes_FromStringAndSize(self.buffer, self.size)
        self.position += self.size
        self.size = 0
        return self.number, self.base, position, data


def copy_rows(Records records not None, int64_t rows, list cursors not None, int64_t time_ns, int64_t at_once,
              int64_t step, list marks not None) -> list:
    """What is to be written now that these rows came, about `at_once` bytes of a topic at a time.

    `marks` gets (topic, segment, offset, position) of a row in each `step` bytes.
    """
    cdef Py_ssize_t i
    cdef const char *at
    cdef Cursor cursor
    cdef int64_t row, topic, topics = len(cursors)
    cdef list ready = []
    for i in range(records.count):
        row = records.first + i
        if not 1 <= row <= rows:
            continue
        at = records.base + records.starts[i]
        memcpy(&topic, at + 16, 8)
        if not 0 <= topic < topics:
            raise ValueError(f"row {row} has no topic")
        cursor = <Cursor>cursors[topic]
        cursor.put(at + HEADER, length_at(at) - HEADER, time_ns, step, marks)
        if cursor.size >= at_once or cursor.left == 0:
            ready.append(cursor.take())
    return ready
