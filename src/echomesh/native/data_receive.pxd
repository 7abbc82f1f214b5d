cimport cython
from libc.stdint cimport int64_t

from echomesh.native.data_account cimport Account
from echomesh.native.data_fifo cimport fifo_t, record_t
from echomesh.native.data_frames cimport head_t
from echomesh.native.data_home cimport Awaited, Home
from echomesh.native.data_message cimport Message
from echomesh.native.data_wait cimport Reading
from echomesh.native.mapping cimport Mapping


@cython.final
cdef class Arrival(Account):
    cdef Inbox inbox
    cdef readonly str peer
    cdef readonly int64_t expected, received
    cdef int64_t received_bytes
    cdef object pool_directory
    cdef dict segments

    cdef int take_hello(self, head_t *head, char *body, int64_t length) except -1
    cdef int take_large(self, head_t *head, char *body, int64_t length) except -1
    cdef int take_other(self, head_t *head, char *body, int64_t length) except -1
    cdef bint in_order(self, int64_t first, int64_t last) noexcept
    cdef int counted(self, head_t *head, int64_t last, int64_t cost) except -1


cdef class Messages:
    cdef Inbox inbox


cdef class Inbox(Awaited):
    cdef readonly Home home
    cdef readonly Reading reading
    cdef public object closed
    cdef public double spin
    cdef fifo_t fifo
    cdef readonly int64_t waiting
    cdef readonly int64_t delivered
    cdef readonly int64_t byte_count
    cdef public int queue

    cdef int append(self, Arrival arrival, head_t *head, const char *body, int64_t length) except -1
    @cython.final
    cdef object pop(self)
    cdef bint await_more(self, timeout) except -1
    @cython.final
    cdef object next_one(self, timeout, bint ends)
    cdef void drop_all(self) noexcept
    @cython.final
    cdef Message message(self, record_t *record)
