from libc.stdint cimport int64_t

from echomesh.native.data_home cimport Home
from echomesh.native.data_message cimport Origin
from echomesh.native.streams cimport Outlet


cdef class Account(Origin):
    cdef Home home
    cdef readonly Outlet outlet
    cdef readonly int64_t stream_id
    cdef readonly int window
    cdef readonly bint open
    cdef readonly int64_t taken, limit
    cdef int64_t told, taken_bytes, told_bytes
    cdef list released

    cdef int took(self, int64_t cost) except -1
    cdef bint due(self) noexcept
    cdef bint give_credit(self) except -1
    cdef void drop(self, int64_t token) noexcept
    cdef bint put_back(self, int64_t token) except -1
    cdef bint give_back(self) except -1
