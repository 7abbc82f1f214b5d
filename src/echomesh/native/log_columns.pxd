"""The columns of a batch by number, and what holds them while it grows."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from echomesh.native.log_blocks cimport column_t

# A set of columns is a word with their bits.
cdef enum:
    TOPIC = 0
    OFFSET = 1
    TIMESTAMP = 2
    TIME = 3
    ID = 4
    SOURCE = 5
    TYPE = 6
    SUBJECT = 7
    DATACONTENTTYPE = 8
    DATASCHEMA = 9
    DATA = 10
    ATTRIBUTES = 11


cdef class Columns:
    cdef readonly int64_t rows, max_rows, max_bytes, first
    cdef int64_t spare              # bytes that surely fit, without counting those that are there
    cdef int64_t bytes, row_bytes, room, hint, entries, got
    cdef uint32_t wanted
    cdef uint32_t seen              # the attributes of the row that is being added
    cdef int64_t time_us            # and its time
    cdef int active[7]              # the wanted ones of ID to DATA
    cdef int active_count
    cdef bytes topic
    cdef list turns                 # (row behind the last, topic) of the topics before
    cdef int64_t topic_bytes        # of one row, 0 when the column is not wanted
    cdef int64_t before_bytes       # what the rows of the topics before have more than as many of this one
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int64_t *times
    cdef int32_t *maps
    cdef uint8_t *times_valid
    cdef int64_t times_null
    cdef column_t texts[11]         # ID to DATA, by their number
    cdef column_t names, values     # of `attributes`

    cdef void drop(self) noexcept nogil
    cdef int start(self) except -1
    cdef int start_text(self, column_t *c, int64_t ends) except -1
    cdef void *zeroed(self, int64_t size, int64_t zeros) except NULL
    cdef int reserve(self) noexcept nogil
    cdef int finish_row(self, int64_t offset, int64_t time_ns, int64_t size) noexcept nogil
    cdef int64_t measured(self) noexcept nogil
    cdef void undo_row(self) noexcept nogil
    cdef object bits(self, uint8_t **bits, int64_t nulls)
    cdef tuple text(self, column_t *c, int64_t count, int64_t offsets_bytes)
    cdef tuple topics(self)
