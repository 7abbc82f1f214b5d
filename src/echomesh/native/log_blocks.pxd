"""Memory for columns: it grows in C, is handed to Python as a buffer, and is used again when that one is dropped."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from "log_sums.h" nogil:
    void em_prefetch_ahead(const void *at, size_t size)

cdef enum:
    SLACK = 64      # bytes behind the last one that may be written to, so that short copies need no exact length
    LONG = 1024
    AHEAD = 8192

ctypedef struct column_t:
    uint8_t *data
    int64_t used, room
    int32_t *offsets        # where each value begins, and the last one ends
    int64_t offsets_room    # how many of them there is room for
    uint8_t *valid          # a bit for each row, or NULL where no row may be without a value
    int64_t nulls


cdef class Block:
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef int64_t room


cdef int64_t room_of(int64_t size) noexcept nogil
cdef void *take_memory(int64_t size, int64_t *room)
cdef Block as_block(void *data, int64_t size, int64_t room)
cdef int grow(void **data, int64_t *room, int64_t wanted) noexcept nogil
cdef int grow_column(column_t *c, int64_t more) noexcept nogil
cdef void free_column(column_t *c) noexcept nogil


cdef inline int push(column_t *c, const uint8_t *p, int64_t n, const uint8_t *limit) noexcept nogil:
    # Puts bytes behind the column's last one. Up to `limit` the source may be read.
    cdef uint8_t *to
    if c.used + n + SLACK > c.room and grow_column(c, n) < 0:
        return -1
    to = c.data + c.used
    c.used += n
    if n <= 32 and limit - p >= 32:
        # Two copies of a fixed length are a few instructions, and need no call.
        memcpy(to, p, 16)
        memcpy(to + 16, p + 16, 16)
    else:
        memcpy(to, p, n)
        if n >= LONG:
            # Where the next one will go: that memory is far away, and there is time until then.
            em_prefetch_ahead(to + n, n if n <= AHEAD else AHEAD)
    return 0
