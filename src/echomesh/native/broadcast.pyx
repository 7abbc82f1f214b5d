"""The broadcast buffer of Agrona: one transmitter, any number of receivers, none of which can hold it up."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from echomesh.errors import Lapped, MessageTooLarge, RingDamaged, UsageError
from echomesh.native.atomics cimport (
    em_acquire_fence, em_fence, em_load32, em_load64, em_now_ns, em_store32, em_store64,
)
from echomesh.native.doorbell cimport SLEEPERS, WORD, bell_sleep, bell_wake
from echomesh.native.mapping cimport Mapping
from echomesh.native.ring_core cimport HEADER, PADDING, align8

cdef enum:
    TRAILER = 128
    INTENT = 0
    TAIL = 8
    LATEST = 16
    # The format leaves the rest unused: a bell for receivers that sleep, and the mark that it is rung.
    BELL = 64
    RINGS = 76
    FOREIGN_POLL_NS = 1000000

TRAILER_LENGTH = TRAILER


cdef class Buffer:
    # What both ends have in common: where the records and the trailer are.
    cdef Mapping mapping
    cdef char *base
    cdef char *trailer
    cdef readonly int64_t capacity

    def __init__(self, Mapping mapping not None, int64_t offset=0, capacity=None):
        cdef int64_t size = mapping.size - offset - TRAILER if capacity is None else capacity
        if size < 64 or size & (size - 1) or size > 1 << 30:
            raise RingDamaged(f"{mapping.path}: {size} bytes are no capacity (a power of two from 64 to 1 GiB)")
        if offset < 0 or offset & 7 or offset > mapping.size - size - TRAILER:
            raise RingDamaged(f"{mapping.path}: a buffer of {size} bytes at {offset} reaches beyond its {mapping.size} bytes")
        self.mapping = mapping
        self.capacity = size
        self.base = mapping.base + offset
        self.trailer = self.base + size

    @property
    def max_message(self) -> int:
        """The largest body, in bytes."""
        return self.capacity >> 3

    @property
    def tail_intent(self) -> int:
        """How far the transmitter has begun to write."""
        return em_load64(self.trailer + INTENT)

    @property
    def tail(self) -> int:
        """How far the transmitter has written."""
        return em_load64(self.trailer + TAIL)

    @property
    def latest(self) -> int:
        """Where the last message begins."""
        return em_load64(self.trailer + LATEST)


cdef class Transmitter(Buffer):
    """The one that sends. `wakes` says that it wakes receivers that sleep; without it they look each millisecond."""

    cdef bint wakes

    def __init__(self, Mapping mapping not None, int64_t offset=0, capacity=None, *, bint wakes=False):
        super().__init__(mapping, offset, capacity)
        if not mapping.writable:
            raise UsageError(f"{mapping.path} is mapped for reading only")
        self.wakes = wakes
        if wakes:
            em_store32(self.trailer + RINGS, 1)

    def transmit(self, int32_t kind, data) -> None:
        """Sends one message to all receivers; those that are too slow will miss it and know it."""
        cdef Py_buffer view
        cdef int64_t tail, index, need, to_end
        if kind < 0:
            raise UsageError(f"a message type is 0 to 2147483647, not {kind}")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > self.capacity >> 3:
                raise MessageTooLarge(view.len, self.capacity >> 3, "this broadcast buffer")
            need = align8(view.len + HEADER)
            tail = em_load64(self.trailer + TAIL)
            if tail & 7 or tail < 0:
                raise RingDamaged(f"{self.mapping.path}: its tail can't be true")
            index = tail & (self.capacity - 1)
            to_end = self.capacity - index
            em_store64(self.trailer + INTENT, tail + need + (to_end if to_end < need else 0))
            em_fence()
            if to_end < need:
                em_store32(self.base + index, <int32_t>to_end)
                em_store32(self.base + index + 4, PADDING)
                tail += to_end
                index = 0
            em_store32(self.base + index, <int32_t>(view.len + HEADER))
            em_store32(self.base + index + 4, kind)
            memcpy(self.base + index + HEADER, view.buf, view.len)
            em_store64(self.trailer + LATEST, tail)
            em_store64(self.trailer + TAIL, tail + need)
        finally:
            PyBuffer_Release(&view)
        if self.wakes:
            em_fence()
            if em_load32(self.trailer + BELL + SLEEPERS):
                bell_wake(self.trailer + BELL)


cdef class Receiver(Buffer):
    """One that listens, from the moment it is made; what was sent before is not for it."""

    cdef int64_t cursor
    cdef readonly int64_t lapped

    def __init__(self, Mapping mapping not None, int64_t offset=0, capacity=None):
        super().__init__(mapping, offset, capacity)
        self.cursor = em_load64(self.trailer + TAIL)

    def receive(self):
        """The next message as (type, bytes), or None. `Lapped` says that messages were lost; the next call goes on."""
        cdef int64_t index, length, lost, tail
        cdef int32_t kind
        while True:
            tail = em_load64(self.trailer + TAIL)
            if tail <= self.cursor:
                return None
            index = self.cursor & (self.capacity - 1) & ~<int64_t>7
            length = em_load32(self.base + index)
            kind = em_load32(self.base + index + 4)
            fits = HEADER <= length <= self.capacity - index
            body = None
            if fits and kind != PADDING:
                body = PyBytes_FromStringAndSize(self.base + index + HEADER, length - HEADER)
            em_acquire_fence()
            # Only now do length, type and body count: the transmitter may have come around while they were read.
            if self.cursor + self.capacity <= em_load64(self.trailer + INTENT):
                self.lapped += 1
                lost = em_load64(self.trailer + LATEST) - self.cursor
                self.cursor = em_load64(self.trailer + LATEST)
                raise Lapped(max(lost, 0))
            # What is between cursor and tail was written within one capacity, or the intent would have said otherwise.
            if not fits or tail - self.cursor > self.capacity:
                raise RingDamaged(f"{self.mapping.path}: no message of {length} bytes can be at {index}")
            self.cursor += align8(length)
            if kind != PADDING:
                return kind, body

    def wait(self, double timeout) -> bool:
        """Sleeps until there is a message, for `timeout` seconds at the most; the GIL is released and Ctrl-C works."""
        cdef int64_t deadline = em_now_ns() + <int64_t>(max(0.0, min(timeout, 1e9)) * 1e9)
        cdef int64_t limit
        cdef int32_t seen
        cdef char *bell = self.trailer + BELL
        cdef bint heard = self.mapping.writable     # one that may only read can't say that it sleeps
        while True:
            with nogil:
                seen = em_load32(bell + WORD)
                if heard:
                    em_store32(bell + SLEEPERS, 1)
                em_fence()
                limit = deadline - em_now_ns()
                if limit > FOREIGN_POLL_NS and not (heard and em_load32(self.trailer + RINGS)):
                    limit = FOREIGN_POLL_NS
                if limit > 0 and em_load64(self.trailer + TAIL) <= self.cursor:
                    bell_sleep(bell, seen, limit)
            if em_load64(self.trailer + TAIL) > self.cursor:
                return True
            PyErr_CheckSignals()
            if em_now_ns() >= deadline:
                return False
