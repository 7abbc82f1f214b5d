from libc.stdint cimport int64_t

from echomesh.native.data_home cimport Home
from echomesh.native.data_target cimport Target
from echomesh.native.data_wait cimport Reading
from echomesh.native.pool cimport Lease, Pool


cdef class Sender:
    cdef readonly Home home
    cdef readonly Reading reading
    cdef readonly Pool pool
    cdef list live
    cdef public int state
    cdef int patience
    cdef public int64_t small
    cdef readonly int64_t sequence
    cdef readonly int64_t byte_count
    cdef public object history

    cdef Lease place(self, int64_t length, timeout)
    cdef object push(self, data, int flags, bytes prefix, timeout, bint quiet, int64_t now)
    cdef object push_lease(self, Lease lease, int flags, bytes prefix, timeout, bint quiet)
    cdef bint pumped(self, Target target) except -1
    cdef void announce_all(self) noexcept
