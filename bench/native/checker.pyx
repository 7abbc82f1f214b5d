# cython: binding=False, boundscheck=False, wraparound=False, cdivision=True
"""Stamps messages and checks them: the same few instructions for every peer, so that only the peers differ."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef enum:
    STAMP = 8
    TAIL_FROM = 4096        # from this size on the last bytes are stamped too: a torn message shows
    LAPS_LIMIT = 1 << 22

cdef uint64_t END_MARK = <uint64_t>-2
cdef uint64_t HELLO_MARK = <uint64_t>-1

HELLO = HELLO_MARK
END = END_MARK
TAIL_STAMP_FROM = TAIL_FROM


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline void put(char *body, int64_t size, uint64_t sequence) noexcept nogil:
    memcpy(body, &sequence, STAMP)
    if size >= TAIL_FROM:
        memcpy(body + size - STAMP, &sequence, STAMP)


def stamp(buffer, uint64_t sequence) -> None:
    """Writes the stamp of one message: the sequence number in front and, in a large one, at the end."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if view.len < STAMP:
            raise ValueError(f"{view.len} bytes hold no stamp")
        put(<char *>view.buf, view.len, sequence)
    finally:
        PyBuffer_Release(&view)


cdef class Stamper:
    """The messages of one run, one after the other: `for body in Stamper(buffer, seconds): send(body)`.

    The body is always the same buffer, newly stamped. It ends after `seconds`, or after `count` messages. With `laps`
    it notes the time from each message to the next: in a loop that sends and waits for the answer, the round trip.
    """

    cdef Py_buffer view
    cdef object body
    cdef readonly uint64_t sent
    cdef uint64_t limit
    cdef int64_t deadline, last, clock_each
    cdef int64_t *lap
    cdef int64_t lap_count

    def __cinit__(self, body, double seconds=0.0, uint64_t count=0, *, bint laps=False):
        PyObject_GetBuffer(body, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.body = body
        if self.view.len < STAMP:
            raise ValueError(f"{self.view.len} bytes hold no stamp")
        self.limit = count if count else HELLO_MARK
        self.deadline = now_ns() + <int64_t>(seconds * 1e9) if seconds > 0 else INT64_MAX
        # A look at the clock costs as much as a small message; a large one takes long enough to look each time.
        self.clock_each = 1 if self.view.len >= TAIL_FROM else 64
        if laps:
            self.lap = <int64_t *>malloc(LAPS_LIMIT * sizeof(int64_t))
            if self.lap == NULL:
                raise MemoryError

    def __dealloc__(self):
        free(self.lap)
        if self.body is not None:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t now
        if self.lap != NULL:
            now = now_ns()
            if self.sent and self.lap_count < LAPS_LIMIT:
                self.lap[self.lap_count] = now - self.last
                self.lap_count += 1
            self.last = now
            if now >= self.deadline:
                raise StopIteration
        elif not self.sent % self.clock_each and now_ns() >= self.deadline:
            raise StopIteration
        if self.sent >= self.limit:
            raise StopIteration
        put(<char *>self.view.buf, self.view.len, self.sent)
        self.sent += 1
        return self.body

    def fill(self, list bodies) -> bool:
        """Stamps a whole batch of buffers with the next numbers; False when the time is over."""
        if self.sent >= self.limit or now_ns() >= self.deadline:
            return False
        for body in bodies:
            stamp(body, self.sent)
            self.sent += 1
        return True

    def laps_ns(self) -> list:
        """The times from each message to the next."""
        return [self.lap[i] for i in range(self.lap_count)]


cdef class Checker:
    """Counts messages of the right length, stamp and order, and what was wrong with the others.

    `on_hello` is called for the first greeting, `on_end` at the end of the stream. The clock is read twice in all, for the
    first message and for the end: not once a message.
    """

    cdef readonly int64_t good      # right in length, stamp and order
    cdef readonly int64_t bad       # short, long, torn or repeated
    cdef readonly int64_t lost      # missing before one that came
    cdef readonly bint ended
    cdef int64_t size, first_ns, end_ns
    cdef uint64_t expected
    cdef bint greeted
    cdef object on_hello, on_end

    def __init__(self, int64_t size, on_hello=None, on_end=None):
        if size < STAMP:
            raise ValueError(f"{size} bytes hold no stamp")
        self.size = size
        self.on_hello = on_hello
        self.on_end = on_end

    def check(self, body) -> bool:
        """Looks at one message; True when it is the end of the stream."""
        cdef Py_buffer view
        if PyBytes_CheckExact(body):
            return self.look(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            return self.look(<char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef inline bint look(self, const char *body, int64_t length) except -1:
        cdef uint64_t sequence, tail
        if length != self.size:
            self.bad += 1
            return False
        memcpy(&sequence, body, STAMP)
        if length >= TAIL_FROM:
            memcpy(&tail, body + length - STAMP, STAMP)
            if tail != sequence:
                self.bad += 1
                return False
        if sequence == self.expected:
            if not self.first_ns:
                self.first_ns = now_ns()
            self.good += 1
            self.expected += 1
            return False
        return self.unexpected(sequence)

    cdef bint unexpected(self, uint64_t sequence) except -1:
        if sequence == HELLO_MARK:
            if not self.greeted:
                self.greeted = True
                if self.on_hello is not None:
                    self.on_hello()
            return False
        if sequence == END_MARK:
            if not self.ended:
                self.end_ns = now_ns()
                self.ended = True
                if self.on_end is not None:
                    self.on_end()
            return True
        if sequence > self.expected:
            self.lost += sequence - self.expected
            self.good += 1
            self.expected = sequence + 1
        else:
            self.bad += 1
        return False

    @property
    def seconds(self) -> float:
        """From the first message to the end."""
        return (self.end_ns - self.first_ns) / 1e9 if self.ended and self.first_ns else 0.0
