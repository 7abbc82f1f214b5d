from libc.stdint cimport int64_t

from echomesh.native.data_fifo cimport fifo_t, record_t
from echomesh.native.data_frames cimport head_t
from echomesh.native.data_home cimport Home
from echomesh.native.mapping cimport Mapping
from echomesh.native.streams cimport Outlet, Taker

cdef enum:
    INLINE = 80    # payloads up to this are kept in the message itself


cdef class Slice:
    cdef Arrival arrival
    cdef Mapping mapping
    cdef int64_t token
    cdef char *start
    cdef int64_t length
    cdef bytes prefix


cdef class Message:
    cdef Arrival arrival
    cdef object owner
    cdef char *start
    cdef readonly int64_t size
    cdef readonly int64_t sequence
    cdef readonly int64_t time_ns
    cdef int prefix_length
    cdef readonly int flags
    cdef char kept[INLINE]


cdef class Arrival(Taker):
    cdef readonly Inbox inbox
    cdef readonly Outlet outlet
    cdef readonly int64_t stream_id
    cdef readonly str topic
    cdef readonly bytes publisher
    cdef readonly str peer
    cdef readonly int window
    cdef readonly int64_t expected, received, taken, limit
    cdef int64_t told, received_bytes, taken_bytes, told_bytes
    cdef readonly bint open
    cdef object pool_directory
    cdef dict segments
    cdef list released

    cdef int took(self, int64_t cost) except -1
    cdef bint due(self) noexcept
    cdef bint give_credit(self) except -1
    cdef int take_hello(self, head_t *head, char *body, int64_t length) except -1
    cdef int take_large(self, head_t *head, char *body, int64_t length) except -1
    cdef int take_other(self, head_t *head, char *body, int64_t length) except -1
    cdef int release(self, int64_t token) except -1
    cdef bint give_back(self) except -1
    cdef int counted(self, head_t *head, int64_t last, int64_t cost) except -1


cdef class Messages:
    cdef Inbox inbox


cdef class Inbox:
    cdef readonly Home home
    cdef fifo_t fifo
    cdef readonly int64_t waiting
    cdef readonly int64_t delivered
    cdef readonly int64_t byte_count
    cdef public int queue

    cdef int append(self, Arrival arrival, head_t *head, const char *body, int64_t length) except -1
    cdef object pop(self)
    cdef void drop_all(self) noexcept
    cdef Message message(self, record_t *record)
