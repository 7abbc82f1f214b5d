from libc.stdint cimport int32_t, int64_t

from echomesh.native.ring cimport Ring, Sink


cdef class Outlet:
    cdef readonly Ring ring
    cdef public bint holding

    cdef bint put(self, int32_t kind, int64_t stream_id, object payload) except -1


cdef class Taker:
    cdef bint took_quickly(self, char *body, int64_t length) noexcept
    cdef int take(self, char *body, int64_t length) except -1


cdef class StreamTable(Sink):
    cdef public dict inbound
    cdef StreamEnd last
    cdef public object outlet
    cdef public bint paused
    cdef object on_data

    cdef int data(self, Ring ring, StreamEnd end, int64_t stream_id, char *body, int64_t length) except -1
    cdef int event(self, Ring ring, int32_t kind, int64_t stream_id, char *body, int64_t length) except -1


cdef class StreamEnd:
    cdef readonly StreamTable table
    cdef public int64_t inbound_id
    cdef public int64_t outbound_id
    cdef public int inbound
    cdef public int outbound
    cdef public Taker taker
