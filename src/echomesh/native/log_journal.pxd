from libc.stdint cimport int64_t

from echomesh.native.log_fill cimport Filling
from echomesh.native.log_frame cimport frame_t


cdef class Journal(Filling):
    cdef int fd, next_fd
    cdef int64_t position, size, next_size
    cdef int64_t frame_at           # where the last frame stands
    cdef readonly int64_t sequence, next_sequence
    cdef int64_t filled[64][3]
    cdef int filled_count
    cdef readonly int64_t last_number

    cdef int write_journal(self, frame_t *f) noexcept nogil
    cdef void call_for_journal(self) noexcept nogil
    cdef bint turn(self, int64_t needed) noexcept nogil
