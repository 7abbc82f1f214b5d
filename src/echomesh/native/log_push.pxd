from libc.stdint cimport int64_t

from echomesh.native.log_ahead cimport Ahead
from echomesh.native.log_frame cimport frame_t


cdef class Pushes(Ahead):
    cdef bint quiet                 # the event loop itself commits, and needs no word of it
    cdef int64_t push_ns            # how long a commit takes
    cdef int64_t answered           # appends that were committed since the thread of `run` last slept

    cdef int step(self) noexcept nogil
    cdef int push(self) noexcept nogil
    cdef int write_meanwhile(self, frame_t *f) noexcept nogil
    cdef int sync_apart(self, frame_t *f) noexcept nogil
    cdef void settle(self, frame_t *f) noexcept nogil
    cdef void new_frame(self) noexcept nogil
