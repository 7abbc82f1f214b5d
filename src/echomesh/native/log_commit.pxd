from libc.stdint cimport int64_t

from echomesh.native.log_push cimport Pushes


cdef class Commits(Pushes):
    cdef bint leader
    cdef int64_t turn_ns            # how long each of those who were answered takes to come back
    cdef public int64_t alone_ns    # an event loop commits a single append itself when that takes less; 0: never
    cdef int64_t alone_from
    cdef int64_t coming             # appends of the commit before, whose makers may be about to append again
    cdef int64_t kicked_ns          # when the thread of `run` was last woken for something
    cdef int64_t failed_ticket      # of the last frame that was given up
    cdef object trouble

    cdef bint wait_for(self, int64_t ticket) except -1
    cdef void wait_for_kick(self) noexcept nogil
    cdef void wait_for_turn(self, int64_t wait_ns) noexcept nogil
    cdef int64_t hold_ns(self) noexcept nogil
    cdef bint holds(self) noexcept nogil
    cdef bint is_late(self, int64_t now) noexcept nogil
    cdef void hand_over(self) noexcept nogil
    cdef void begin_turn(self) noexcept nogil
    cdef void kick(self, bint work, bint turned, int64_t count, int64_t began) noexcept nogil
    cdef bint commit_alone(self) except -1
    cdef lead(self, int status)
