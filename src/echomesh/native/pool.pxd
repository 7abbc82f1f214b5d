from libc.stdint cimport int64_t

from echomesh.native.mapping cimport Mapping


cdef class Segment:
    cdef readonly int64_t number
    cdef readonly int64_t slot_bytes
    cdef readonly int64_t used
    cdef readonly Mapping mapping
    cdef list free


cdef class Lease:
    cdef Segment segment
    cdef readonly int64_t token
    cdef readonly int64_t offset
    cdef readonly int64_t length
    cdef char *start
    cdef int64_t exports
    cdef readonly bint sealed


cdef class Pool:
    cdef readonly int64_t limit
    cdef readonly int64_t total
    cdef object directory
    cdef object number
    cdef dict segments
    cdef dict free
    cdef public object on_retired

    cpdef Lease lease(self, int64_t length)
    cdef bint grow(self, int64_t slot_bytes) except -1
