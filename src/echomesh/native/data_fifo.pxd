# What waits in an inbox: records of any length in one block of memory, first in, first out.

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from echomesh.native.data_frames cimport head_t
from echomesh.native.ring_core cimport align8

cdef enum:
    FIRST_CAPACITY = 1 << 15

ctypedef struct record_t:
    int64_t size            # of the record with its payload, aligned; negative: to be skipped, up to the end
    int64_t length
    PyObject *arrival
    head_t head

ctypedef struct fifo_t:
    char *buffer
    int64_t capacity        # a power of two
    int64_t head
    int64_t tail


cdef inline record_t *fifo_at(fifo_t *fifo, int64_t position) noexcept:
    return <record_t *>(fifo.buffer + (position & (fifo.capacity - 1)))


cdef inline record_t *fifo_first(fifo_t *fifo) noexcept:
    # The oldest record, or NULL; `fifo_drop` takes it out.
    if fifo.head < fifo.tail and fifo_at(fifo, fifo.head).size < 0:
        fifo.head -= fifo_at(fifo, fifo.head).size
    return fifo_at(fifo, fifo.head) if fifo.head < fifo.tail else NULL


cdef inline void fifo_drop(fifo_t *fifo, record_t *record) noexcept:
    fifo.head += record.size


cdef inline bint fifo_grow(fifo_t *fifo, int64_t wanted) noexcept:
    cdef int64_t capacity = max(fifo.capacity * 2, FIRST_CAPACITY), at = 0
    cdef char *made
    cdef record_t *record
    while capacity - (fifo.tail - fifo.head) < wanted:
        capacity *= 2
    made = <char *>malloc(capacity)
    if made == NULL:
        return False
    while True:
        record = fifo_first(fifo)
        if record == NULL:
            break
        memcpy(made + at, record, record.size)
        at += record.size
        fifo_drop(fifo, record)
    free(fifo.buffer)
    fifo.buffer = made
    fifo.capacity = capacity
    fifo.head = 0
    fifo.tail = at
    return True


cdef inline record_t *fifo_add(fifo_t *fifo, int64_t length) noexcept:
    # A new record with `length` bytes behind it, or NULL when there is no memory.
    cdef int64_t need = align8(sizeof(record_t) + length), to_end
    cdef record_t *record
    if fifo.head == fifo.tail:
        fifo.head = fifo.tail = 0       # the same memory again, which is in the cache
    to_end = fifo.capacity - (fifo.tail & (fifo.capacity - 1)) if fifo.capacity else 0
    if fifo.capacity - (fifo.tail - fifo.head) < need + (to_end if to_end < need else 0):
        if not fifo_grow(fifo, need):
            return NULL
        to_end = fifo.capacity - (fifo.tail & (fifo.capacity - 1))
    if to_end < need:
        fifo_at(fifo, fifo.tail).size = -to_end
        fifo.tail += to_end
    record = fifo_at(fifo, fifo.tail)
    record.size = need
    record.length = length
    fifo.tail += need
    return record
