from libc.stdint cimport int64_t

from echomesh.native.ring_base cimport RingBase


cdef class Window:
    cdef RingBase ring
    cdef char *start
    cdef int64_t length
    cdef int64_t exports


cdef class Claim:
    cdef RingBase ring
    cdef int64_t index
    cdef readonly int64_t length
    cdef int64_t exports
    cdef bint done
    cdef object entered

    cdef int end(self) except -1
