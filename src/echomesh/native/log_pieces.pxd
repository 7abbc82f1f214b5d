from libc.stdint cimport int64_t


cdef class Pieces:
    cdef object owner               # of the bytes
    cdef const char *base
    cdef int64_t *bounds            # where each piece begins; one more for the end of the last
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room

    cdef int add(self, int64_t bound) except -1
