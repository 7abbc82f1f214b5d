from libc.stdint cimport int64_t


cdef class Home:
    cdef public bint alive
    cdef public int64_t activity
    cdef public int64_t credited
    cdef public bint owing
    cdef public bint lagging


cdef class Awaited:
    cdef bint came(self) except -1
