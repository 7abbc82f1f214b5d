from libc.stdint cimport int64_t

from echomesh.native.log_frame cimport frame_t
from echomesh.native.log_journal cimport Journal
from echomesh.native.log_maps cimport Maps


cdef class Commits(Journal):
    cdef bint leader
    cdef bint quiet                 # the event loop itself commits, and needs no word of it
    cdef int64_t push_ns, turn_ns   # how long a commit takes, and each of those who were answered to come back
    cdef int64_t answered           # appends that were committed since the thread of `run` last slept
    cdef public int64_t alone_ns    # an event loop commits a single append itself when that takes less; 0: never
    cdef int64_t alone_from
    cdef object trouble
    cdef Maps maps

    cdef int step(self) noexcept nogil
    cdef int push(self) noexcept nogil
    cdef int copy_to_segments(self, frame_t *f) noexcept nogil
    cdef int sync_apart(self, frame_t *f) noexcept nogil
    cdef void settle(self, frame_t *f) noexcept nogil
    cdef void new_frame(self) noexcept nogil
    cdef void wait_for_kick(self) noexcept nogil
    cdef void hand_over(self) noexcept nogil
    cdef void kick(self, bint work, bint turned, int64_t count, int64_t began) noexcept nogil
    cdef bint commit_alone(self) except -1
    cdef lead(self, int status)
