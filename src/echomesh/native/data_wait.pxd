from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t

from echomesh.native.data_home cimport Awaited, Home
from echomesh.native.intake cimport Intake
from echomesh.native.waiter cimport Waiter


cdef class Turn:
    cdef PyThread_type_lock held

    cdef bint taken_at_once(self) noexcept
    cdef void give(self) noexcept
    cdef void await_free(self) noexcept


cdef class Place:
    cdef Waiter waiter
    cdef int64_t generation
    cdef int commands


cdef class Asked(Awaited):
    cdef object question


cdef class Reading:
    cdef readonly Home home
    cdef readonly object nukleus
    cdef readonly Turn lock
    cdef readonly dict watching
    cdef readonly int sleepers
    cdef readonly int64_t generation
    cdef Intake intake
    cdef int64_t credited
    cdef object places
    cdef Place last
    cdef unsigned long last_thread

    cdef Place place_of_thread(self)
    cdef int rewatch(self, Place place) except -1
    cdef bint read_now(self, int mine) except -1
    cdef int after(self, int64_t done, int mine) except -1
    cdef bint wait_for(self, Awaited what, object timeout, double spin) except -1
