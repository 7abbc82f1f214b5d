from libc.stdint cimport int64_t


cdef class Mapping:
    cdef char *base
    cdef readonly int64_t size
    cdef readonly str path
    cdef readonly bint writable
    cdef readonly object identity
