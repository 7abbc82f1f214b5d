from libc.stdint cimport int64_t

from echomesh.native.doorbell cimport Doorbell
from echomesh.native.mapping cimport Mapping
from echomesh.native.ring_core cimport ring_t


cdef class RingBase:
    cdef ring_t core
    cdef Mapping mapping
    cdef Doorbell bell
    cdef Doorbell writer_bell
    cdef readonly bint closed
    cdef readonly int64_t offset

    cdef int check_open(self) except -1
    cdef int check_writable(self) except -1
    cdef void rung(self) noexcept nogil
