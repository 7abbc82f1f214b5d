"""The hot path of streams: data from a ring to the handler of its stream, and data of a stream to its ring.

All else about streams, which are few events each, is the nukleus's, in Python.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject
from libc.string cimport memcpy

from echomesh.errors import BusyError, RingDamaged, ViewKept
from echomesh.native.ring cimport end_view

DATA = 2
IDLE = 0
OPEN = 1
ENDED = 2

cdef enum:
    C_DATA = 2
    C_OPEN = 1


cdef class Outlet:
    """The way to one peer: a ring, and what is done when it is full."""

    def __init__(self, Ring ring not None):
        self.ring = ring

    cdef bint put(self, int32_t kind, int64_t stream_id, object payload) except -1:
        cdef bint written = False
        if not self.holding:
            try:
                written = self.ring.put(kind, <char *>&stream_id, 8, payload)
            except (RingDamaged, BusyError):    # nobody else claims here: an open claim is damage too
                self.give_up()
                return True
        if not written:
            return self.overflow(kind, stream_id, payload)
        if self.ring.bell is not None:
            self.ring.rung()
        return True

    def write(self, int32_t kind, int64_t stream_id, payload=b"") -> bool:
        """Writes a frame, or leaves it to `overflow` while frames are held back or there is no room."""
        return self.put(kind, stream_id, payload)

    def overflow(self, kind, stream_id, payload) -> bool:
        """What becomes of a frame that finds no room, or comes while `holding`."""
        raise NotImplementedError

    def give_up(self) -> None:
        """The ring turned out to be damaged."""
        raise NotImplementedError


cdef class Taker:
    # Compiled code that takes the data of one stream in place, instead of the table's `on_data`.

    cdef bint took_quickly(self, char *body, int64_t length) noexcept:
        # The usual, without a way to fail; False leaves it to `take`.
        return False

    cdef int take(self, char *body, int64_t length) except -1:
        return 0


cdef class StreamTable(Sink):
    """The streams that come in from one peer, by id.

    As a sink of the peer's ring it gives the data of open ones to `on_data(stream, view)` and all other events to
    `receive(kind, id, view)`; what `on_data` raises goes to `failed(id, error)`. A stream with a `taker` has its data taken by
    that. A true `paused` ends the reading.
    """

    def __init__(self, on_data):
        self.inbound = {}
        self.on_data = on_data

    cdef bint take(self, Ring ring, int32_t kind, char *body, int64_t length) except -1:
        cdef int64_t stream_id = 0
        cdef PyObject *found
        if length < 8:
            self.malformed()
            return self.paused
        memcpy(&stream_id, body, 8)
        if kind == C_DATA:
            # Most often it is the stream of the frame before; one that ended is open no more.
            if self.last is None or self.last.inbound_id != stream_id or self.last.inbound != C_OPEN:
                found = PyDict_GetItem(self.inbound, stream_id)
                self.last = <StreamEnd>found if found != NULL else None
            if self.last is not None and self.last.inbound == C_OPEN:
                if self.last.taker is None or not self.last.taker.took_quickly(body + 8, length - 8):
                    self.data(ring, self.last, stream_id, body + 8, length - 8)
                return self.paused
        self.event(ring, kind, stream_id, body + 8, length - 8)
        return self.paused

    cdef int data(self, Ring ring, StreamEnd end, int64_t stream_id, char *body, int64_t length) except -1:
        if end.taker is not None:
            try:
                end.taker.take(body, length)
            except Exception as error:
                self.failed(stream_id, error)
            return 0
        view = ring.view(body, length)
        failure = None
        try:
            self.on_data(end, view)
        except Exception as error:
            failure = error
        end_view(view)
        view = None
        if ring.kept() and failure is None:
            failure = ViewKept("a handler kept a view beyond its call: keep bytes(view) instead")
        if failure is not None:
            self.failed(stream_id, failure)
        return 0

    cdef int event(self, Ring ring, int32_t kind, int64_t stream_id, char *body, int64_t length) except -1:
        view = ring.view(body, length)
        try:
            self.receive(kind, stream_id, view)
        finally:
            end_view(view)
            view = None
            ring.kept()
        return 0


cdef class StreamEnd:
    """Our end of one connection with a peer."""

    def __init__(self, StreamTable table not None):
        self.table = table

    def send(self, payload) -> bool:
        """Sends data. False when the peer's ring is full; from within a handler that never happens: the nukleus keeps
        the frame, and reads nothing more that feeds this peer until there is room."""
        cdef object outlet = self.table.outlet
        if self.outbound != C_OPEN or outlet is None:
            self.refuse()
        if isinstance(outlet, Outlet):
            return (<Outlet>outlet).put(C_DATA, self.outbound_id, payload)
        return outlet.write(C_DATA, self.outbound_id, payload)
