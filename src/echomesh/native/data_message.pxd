from libc.stdint cimport int64_t

from echomesh.native.streams cimport Taker

cdef enum:
    INLINE = 80    # payloads up to this are kept in the message itself


cdef class Origin(Taker):
    cdef readonly str topic
    cdef readonly bytes publisher
    cdef readonly object subscriber

    cdef int release(self, int64_t token) except -1


cdef class Message:
    cdef Origin origin
    cdef object owner           # of the memory, where that is not the message's own
    cdef char *start
    cdef readonly int64_t size
    cdef readonly int64_t sequence
    cdef readonly int64_t time_ns
    cdef int prefix_length
    cdef readonly int flags
    cdef char kept[INLINE]


cdef class Slice:
    cdef Origin origin
    cdef object mapping
    cdef int64_t token
    cdef bytes prefix


cdef Message new_message()
cdef Slice new_slice(Origin origin, mapping, int64_t token, bytes prefix)
