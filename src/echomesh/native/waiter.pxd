from libc.stdint cimport int32_t, int64_t

from echomesh.native.doorbell cimport Doorbell
from echomesh.native.ring_core cimport ring_t

ctypedef struct room_t:
    ring_t *ring
    int64_t length


cdef class Waiter:
    cdef readonly Doorbell bell
    cdef list rings, full
    cdef ring_t **readers
    cdef room_t *rooms
    cdef int reader_count, room_count, last
    cdef int brief, trust
    cdef int32_t seen
    cdef bint waiting

    cdef int find(self) noexcept nogil
    cdef bint look(self) noexcept nogil
    cdef bint foreign(self) noexcept nogil
    cdef void want_room(self) noexcept nogil
    cdef bint rung(self) noexcept nogil
    cdef int spin(self, int64_t until) noexcept nogil
    cdef int look_or_sleep(self, int64_t deadline) noexcept nogil
    cdef int sleep(self, int64_t deadline) noexcept nogil
    cdef int await_any(self, double timeout, double spin) except -2
    cpdef int next(self, double timeout, double spin) except -2
