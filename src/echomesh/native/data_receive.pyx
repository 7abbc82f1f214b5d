"""The hot path of a subscriber: from the frames of its streams to messages.

Frames leave the ring as soon as anybody reads it, so that no subscriber holds up the others of its process; they wait in
an inbox, of which credit is the bound. A message object is made when somebody takes it.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, Py_XINCREF, PyObject
from libc.stdlib cimport free
from libc.string cimport memcpy

from echomesh.errors import BadFrame, ClosedError
from echomesh.native.data_account cimport is_due, took
from echomesh.native.data_fifo cimport fifo_add, fifo_drop, fifo_first
from echomesh.native.data_frames cimport GAP, HELLO, LARGE, MESSAGE, RETIRED, SEGMENT, WINDOW_BYTES, cost, descriptor_t
from echomesh.native.data_message cimport INLINE, new_message, new_slice
from echomesh.native.streams cimport Outlet

# A message in a pool, as it waits in an inbox.
ctypedef struct large_t:
    int64_t token
    int64_t length
    char *start
    PyObject *mapping
    PyObject *prefix

cdef enum:
    PUBLISHER_ID = 16
    MOST_TOPIC = 255
    MOST_SEGMENTS = 1024


@cython.final
cdef class Arrival(Account):
    """One stream from a publisher: checks what comes, puts it into the inbox, and gives credit for what was taken."""

    def __init__(self, Inbox inbox not None, Outlet outlet not None, int64_t stream_id, str peer, pool_directory):
        super().__init__(inbox.home, outlet, stream_id, inbox.queue)
        self.inbox = self.subscriber = inbox
        self.peer = peer
        self.pool_directory = pool_directory
        self.segments = {}
        self.expected = -1

    def close(self) -> None:
        """The stream is gone; what it brought can still be taken."""
        self.open = False
        self.segments = {}

    cdef bint took_quickly(self, char *body, int64_t length) noexcept:
        # A message as it should be; whatever else it is, is for `take`.
        cdef head_t *head = <head_t *>body
        cdef record_t *record
        length -= sizeof(head_t)
        if length < 0 or head.kind != MESSAGE or head.prefix > length or not self.in_order(head.sequence, head.sequence):
            return False
        record = fifo_add(&self.inbox.fifo, length)
        if record == NULL:
            return False
        record.head = head[0]
        record.arrival = <PyObject *>self
        Py_INCREF(self)
        memcpy(record + 1, body + sizeof(head_t), length)
        self.inbox.waiting += 1
        self.expected += 1
        self.received += 1
        self.received_bytes += cost(MESSAGE, length)
        return True

    cdef bint in_order(self, int64_t first, int64_t last) noexcept:
        # Numbers must follow on, and stay within the credit: so what can wait here is bounded, whatever the peer does.
        return first == self.expected and self.expected >= 0 and first <= last < 0x7FFFFFFFFFFFFFFF \
            and self.received < self.limit and self.received_bytes - self.told_bytes <= WINDOW_BYTES

    cdef int take(self, char *body, int64_t length) except -1:
        cdef head_t *head = <head_t *>body
        if length < <int64_t>sizeof(head_t):
            raise BadFrame(f"a frame of {length} bytes on a stream of {self.peer}")
        body += sizeof(head_t)
        length -= sizeof(head_t)
        if head.kind == MESSAGE:
            if head.prefix > length:
                raise BadFrame(f"a message of {self.peer} with a prefix longer than itself")
            self.counted(head, head.sequence, cost(MESSAGE, length))
            self.inbox.append(self, head, body, length)
        elif head.kind == LARGE:
            self.take_large(head, body, length)
        else:
            self.take_other(head, body, length)
        return 0

    cdef int counted(self, head_t *head, int64_t last, int64_t cost) except -1:
        if not self.in_order(head.sequence, last):
            raise BadFrame(
                f"{self.peer} sent number {head.sequence}, where {self.expected} should come, or more than the {self.limit} "
                f"messages and {WINDOW_BYTES} bytes that it may"
            )
        self.expected = last + 1
        self.received += 1
        self.received_bytes += cost
        return 0

    cdef int take_large(self, head_t *head, char *body, int64_t length) except -1:
        cdef descriptor_t place
        cdef Mapping mapping
        cdef large_t made
        if length < <int64_t>sizeof(descriptor_t) or length - <int64_t>sizeof(descriptor_t) != head.prefix:
            raise BadFrame(f"a descriptor of {self.peer} with {length} bytes")
        memcpy(&place, body, sizeof(descriptor_t))
        mapping = self.segments.get(place.token >> 32)
        if mapping is None:
            raise BadFrame(f"{self.peer} named segment {place.token >> 32}, which it did not announce")
        if place.offset < 0 or place.length < 0 or place.length > mapping.size or place.offset > mapping.size - place.length:
            raise BadFrame(f"a descriptor of {self.peer} reaches beyond its segment")
        self.counted(head, head.sequence, cost(LARGE, 0))
        made.token = place.token
        made.start = mapping.base + place.offset
        made.length = place.length
        made.prefix = NULL
        if head.prefix:
            prefix = body[sizeof(descriptor_t):length]
            made.prefix = <PyObject *>prefix
        made.mapping = <PyObject *>mapping
        self.inbox.append(self, head, <char *>&made, sizeof(made))
        Py_XINCREF(made.prefix)     # the record's
        Py_XINCREF(made.mapping)
        return 0

    cdef int take_other(self, head_t *head, char *body, int64_t length) except -1:
        if head.kind == HELLO:
            self.take_hello(head, body, length)
        elif head.kind == GAP:
            self.counted(head, head.time_ns, cost(GAP, 0))
            self.inbox.append(self, head, NULL, 0)
        elif head.kind == SEGMENT:
            if len(self.segments) >= MOST_SEGMENTS:
                raise BadFrame(f"{self.peer} has more than {MOST_SEGMENTS} segments")
            path = os.path.join(self.pool_directory, str(head.extra))
            self.segments[head.extra] = Mapping.open(path, writable=False)
        elif head.kind == RETIRED:
            self.segments.pop(head.extra, None)
        else:
            raise BadFrame(f"a frame of kind {head.kind} on a stream of {self.peer}")
        return 0

    cdef int take_hello(self, head_t *head, char *body, int64_t length) except -1:
        if self.expected >= 0 or head.sequence < 0 or not PUBLISHER_ID < length <= PUBLISHER_ID + MOST_TOPIC:
            raise BadFrame(f"{self.peer} began a stream with something else than what it is")
        self.publisher = body[:PUBLISHER_ID]
        try:
            self.topic = body[PUBLISHER_ID:length].decode()
        except UnicodeDecodeError:
            raise BadFrame(f"{self.peer} named a topic that is not UTF-8") from None
        self.inbox.greeted(self)
        self.expected = head.sequence
        if 0 < head.extra < <unsigned int>self.window:
            self.window = head.extra
        if not self.give_credit():
            self.home.owing = True
        return 0

    def settle(self) -> bool:
        """Writes credit and releases that found no room before; False when there is still none."""
        if self.expected >= 0 and (not self.limit or is_due(self)) and not self.give_credit():
            return False
        return self.give_back()


cdef class Messages:
    # The iterator of an inbox: of a class that nobody derives from, whose `next` needs no look for a method.

    def __iter__(self):
        return self

    def __next__(self):
        cdef object found = self.inbox.next_one(None, True)
        if found is None:
            raise StopIteration
        return found


cdef class Inbox(Awaited):
    """Messages of all streams of one subscriber, in the order in which they came.

    Iterating takes them, and waits where none is there. `closed` is the error that says why none will come any more. A
    derived class says in `gap` what to do about messages that will not come, and in `reply` how to answer one.
    """

    def __init__(self, Reading reading not None, int queue, double spin):
        self.reading = reading
        self.home = reading.home
        self.queue = queue
        self.spin = spin

    def __dealloc__(self):
        self.drop_all()
        free(self.fifo.buffer)

    cdef void drop_all(self) noexcept:
        cdef record_t *record
        cdef large_t *large
        cdef Arrival arrival
        self.waiting = 0
        while True:
            record = fifo_first(&self.fifo)
            if record == NULL:
                return
            fifo_drop(&self.fifo, record)
            arrival = <Arrival>record.arrival
            if record.head.kind == LARGE:
                large = <large_t *>(record + 1)
                arrival.drop(large.token)
                Py_XDECREF(large.prefix)
                Py_XDECREF(large.mapping)
            Py_DECREF(arrival)

    def clear(self) -> None:
        """Forgets what was not taken."""
        self.drop_all()

    cdef int append(self, Arrival arrival, head_t *head, const char *body, int64_t length) except -1:
        cdef record_t *record = fifo_add(&self.fifo, length)
        if record == NULL:
            raise MemoryError
        record.head = head[0]
        record.arrival = <PyObject *>arrival
        Py_INCREF(arrival)
        if length:
            memcpy(record + 1, body, length)
        self.waiting += 1
        return 0

    @cython.final
    cdef Message message(self, record_t *record):
        cdef Message made = new_message()
        cdef large_t *large
        made.sequence = record.head.sequence
        made.time_ns = record.head.time_ns
        made.flags = record.head.flags
        made.prefix_length = record.head.prefix
        if record.head.kind == LARGE:
            large = <large_t *>(record + 1)
            made.owner = new_slice(
                <Arrival>record.arrival, <object>large.mapping, large.token,
                <bytes>large.prefix if large.prefix != NULL else b"",
            )
            Py_XDECREF(large.mapping)   # the record's
            Py_XDECREF(large.prefix)
            made.start = large.start
            made.size = large.length
        else:
            if record.length <= INLINE:
                made.start = made.kept
                memcpy(made.kept, record + 1, record.length)
            else:
                made.owner = PyBytes_FromStringAndSize(<char *>(record + 1), record.length)
                made.start = PyBytes_AS_STRING(made.owner)
            made.start += record.head.prefix
            made.size = record.length - record.head.prefix
        made.origin = <Arrival>record.arrival
        return made

    @cython.final
    cdef object pop(self):
        # The next message, or None when there was no more than gaps.
        cdef record_t *record
        cdef Arrival arrival
        cdef Message made = None
        cdef head_t head
        cdef int64_t length
        while made is None and self.waiting:
            record = fifo_first(&self.fifo)
            head = record.head
            if head.kind != GAP:
                made = self.message(record)
            arrival = <Arrival>record.arrival
            length = record.length
            fifo_drop(&self.fifo, record)
            self.waiting -= 1
            Py_DECREF(arrival)      # the record's
            took(arrival, cost(head.kind, length))
            if made is None:
                self.gap(arrival, head.sequence, head.time_ns, head.extra)
            else:
                self.delivered += 1
                self.byte_count += made.size
        return made

    cdef bint came(self) except -1:
        return self.waiting > 0 or self.closed is not None

    cdef bint await_more(self, timeout) except -1:
        if not self.waiting and (self.closed is not None or not self.home.alive):
            self.check()
        return self.reading.wait_for(self, timeout, self.spin)

    @cython.final
    cdef object next_one(self, timeout, bint ends):
        # None when the time is over, or, where it `ends`, when nothing will come any more: it was closed, or the process
        # has left the mesh, which who waits here may find first.
        cdef object found
        while True:
            if self.waiting:
                found = self.pop()
                if found is not None:
                    return found
            else:
                try:
                    if not self.await_more(timeout):
                        return None
                except ClosedError:
                    if ends:
                        return None
                    raise

    def more(self, timeout=None) -> bool:
        """Waits until something is there; False when the time is over. What keeps messages from coming is raised."""
        return self.await_more(timeout)

    def obtain(self, timeout=None):
        """The next message, for which it waits; None when the time is over."""
        return self.next_one(timeout, False)

    def check(self) -> None:
        """Raises what keeps it from receiving, where nothing is left to take."""
        if self.closed is None:
            self.reading.check()
        elif not self.waiting:
            raise self.closed

    def take(self):
        """The next message, or None when none is there."""
        return self.pop() if self.waiting else None

    def take_many(self, int64_t limit) -> list:
        """Up to `limit` messages, as many as are there."""
        cdef list taken = []
        while self.waiting and len(taken) < limit:
            message = self.pop()
            if message is not None:
                taken.append(message)
        return taken

    def __iter__(self):
        cdef Messages made = Messages.__new__(Messages)
        made.inbox = self
        return made

    def greeted(self, arrival) -> None:
        """A publisher said who it is; raising refuses it."""

    def gap(self, arrival, first, last, reason) -> None:
        """Messages that will not come."""
