from libc.stdint cimport int64_t

from echomesh.native.ring cimport Ring
from echomesh.native.streams cimport StreamTable


cdef class Source:
    cdef public Ring ring
    cdef public StreamTable peer


cdef class Intake:
    cdef readonly dict inlets
    cdef readonly Source reading
    cdef public bint changed
    cdef object frames

    cpdef int64_t read(self, Source inlet) except -1
    cpdef int64_t read_ready(self) except -1
