from libc.stdint cimport int32_t, int64_t

from echomesh.native.ring_base cimport RingBase
from echomesh.native.ring_views cimport Window


cdef int end_view(object view) except -1


cdef class Sink:
    cdef bint take(self, Ring ring, int32_t kind, char *body, int64_t length) except -1


cdef class Ring(RingBase):
    cdef Window window
    cdef bint reading

    cdef int64_t claim_for(self, int64_t length, int64_t kind) except -3
    cdef bint put(self, int32_t kind, const char *prefix, int64_t prefix_length, object data) except -1
    cdef int finish(self, int64_t head, int64_t count) except -1
    cdef object view(self, char *start, int64_t length)
    cdef bint kept(self) except -1
    cdef object call_in_place(self, object handler, int32_t kind, char *body, int64_t length)
    cdef object deliver(self, object handler, Sink sink, int64_t limit)
