from libc.stdint cimport int64_t

from echomesh.native.log_frame cimport topic_t
from echomesh.native.log_window cimport Window


cdef class Topic:
    cdef topic_t core
    cdef readonly list marks        # entries for the index that are not yet in its file
    cdef public Window window       # against duplicates, or None
    cdef public bint journaled      # whether its appends wait for the disk

ctypedef struct end_t:
    int64_t base, position, offset, time_ns

cdef void move_end(topic_t *t, end_t end) noexcept nogil
cdef end_t read_end(topic_t *t) noexcept nogil
