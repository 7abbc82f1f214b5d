"""Records for many segments, copied there before their commit, while an event loop still adds to the frame."""

from libc.stdint cimport int64_t

from echomesh.native.log_fill cimport pthread_mutex_t
from echomesh.native.log_frame cimport frame_t, write_t
from echomesh.native.log_journal cimport Journal
from echomesh.native.log_maps cimport Maps

cdef enum:
    AHEAD_WRITES = 64           # at once: an append that comes meanwhile waits until they were taken
    AHEAD_BYTES = 256 << 10


cdef class Ahead(Journal):
    cdef Maps maps
    cdef pthread_mutex_t maps_lock  # who has it may use the maps; it is never waited for with `lock`
    cdef bint many                  # the last commit went to many segments
    cdef readonly int64_t copied_ahead      # writes so far
    cdef int ahead_fd
    cdef char *ahead_bytes
    cdef write_t ahead_writes[AHEAD_WRITES]

    cdef bint copy_ahead(self) noexcept nogil
    cdef void copy_beside(self) noexcept nogil
    cdef void await_dirty(self, double timeout) noexcept nogil
    cdef bint grant_wishes(self) noexcept nogil
    cdef void forget_ahead(self) noexcept nogil
    cdef int copy_rest(self, frame_t *f) noexcept nogil
    cdef int copy_behind(self, frame_t *f) noexcept nogil
