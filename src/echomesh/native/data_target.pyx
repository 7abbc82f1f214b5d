"""One subscriber as its publisher sees it: credit, frames written, places of the pool that it has."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from echomesh.errors import BadFrame, BusyError, ClosedError, RingDamaged
from echomesh.native.data_frames cimport (
    CREDIT, GAP, HELLO, LARGE, MESSAGE, RELEASE, RETIRED, SEGMENT, WINDOW_BYTES, announce, cost, descriptor_t, frame_of, head_t,
    now_ns, put_frame,
)

cdef enum:
    MOST_CREDIT = 1 << 30


cdef class Target(Taker):
    """One subscriber's stream, as its publisher sees it: what it may be sent, and what of the pool it has."""

    def __init__(self, Home home not None, Outlet outlet not None, int64_t stream_id):
        self.home = home
        self.outlet = outlet
        self.stream_id = stream_id
        self.ledger = {}
        self.segments = set()
        self.open = True

    cdef void lag(self) noexcept:
        self.lags = self.home.lagging = True

    @property
    def slow(self) -> bool:
        """Whether messages wait for it in a queue: those that follow go there, too."""
        return self.lags

    @slow.setter
    def slow(self, bint slow):
        if slow:
            self.lag()
        else:
            self.lags = False

    def close(self) -> None:
        """The stream is gone, and what it had of the pool is free."""
        self.open = False
        self.lent = 0
        self.ledger = {}

    cdef int take(self, char *body, int64_t length) except -1:
        # Credit and releases of the subscriber, who is believed in nothing.
        cdef head_t *head = <head_t *>body
        cdef int64_t token, at
        if length < <int64_t>sizeof(head_t):
            raise BadFrame(f"a frame of {length} bytes on a reply stream")
        if not self.open:
            return 0
        if head.kind == CREDIT:
            if not self.taken <= head.sequence <= self.sent or not self.limit <= head.time_ns <= self.sent + MOST_CREDIT:
                raise BadFrame(f"credit of {head.sequence} taken and {head.time_ns} allowed, with {self.sent} sent")
            if length != <int64_t>sizeof(head_t) + 8:
                raise BadFrame(f"credit of {length} bytes")
            memcpy(&token, body + sizeof(head_t), 8)
            if not self.byte_limit - WINDOW_BYTES <= token <= self.sent_bytes:
                raise BadFrame(f"{token} bytes are taken, with {self.sent_bytes} sent")
            self.taken = head.sequence
            self.limit = head.time_ns
            self.byte_limit = token + WINDOW_BYTES
        elif head.kind == RELEASE:
            for at in range(sizeof(head_t), length - 7, 8):
                memcpy(&token, body + at, 8)
                lease = self.ledger.pop(token, None)
                if lease is None:
                    raise BadFrame(f"a release of {token:#x}, which was not lent")
                self.lent -= (<Lease>lease).length
        else:
            raise BadFrame(f"a frame of kind {head.kind} on a reply stream")
        self.home.credited += 1
        return 0

    cdef bint put(
        self, frame_t *frame, const char *first, int64_t first_length, const char *second, int64_t second_length
    ) except -1:
        try:
            return put_frame(self.outlet, frame, first, first_length, second, second_length)
        except (RingDamaged, BusyError):    # its reader replaces it, and resets the stream
            self.outlet.give_up()
        except ClosedError:
            self.open = False
        return False

    cdef bint may(self, int64_t sequence) noexcept:
        # Numbers go out in order, whatever threads do: who comes too early waits as if there were no credit.
        return self.sent < self.limit and self.sent_bytes < self.byte_limit and sequence == self.next

    cdef bint give(self, frame_t *frame, const char *prefix, const char *data, int64_t length) except -1:
        if not self.may(frame.head.sequence):
            return False
        frame.stream_id = self.stream_id
        if not self.put(frame, prefix, frame.head.prefix, data, length):
            return False
        self.sent_bytes += cost(MESSAGE, frame.head.prefix + length)
        self.sent += 1
        self.next += 1
        return True

    cdef bint lend(self, frame_t *frame, const char *prefix, Lease lease) except -1:
        cdef descriptor_t place
        cdef frame_t segment
        cdef int64_t number = lease.segment.number
        if not self.may(frame.head.sequence):
            return False
        if self.lent and self.lent + lease.length > self.lent_limit:
            return False
        if number not in self.segments:
            segment = frame_of(self.stream_id, SEGMENT, 0, 0)
            segment.head.extra = <uint32_t>number
            if not self.put(&segment, NULL, 0, NULL, 0):
                return False
            self.segments.add(number)
        place.token = lease.token
        place.offset = lease.offset
        place.length = lease.length
        frame.stream_id = self.stream_id
        if not self.put(frame, <char *>&place, sizeof(place), prefix, frame.head.prefix):
            return False
        self.ledger[lease.token] = lease
        self.lent += lease.length
        self.sent_bytes += cost(LARGE, 0)
        self.sent += 1
        self.next += 1
        return True

    def write(self, int64_t sequence, int64_t time_ns, int flags, bytes prefix, payload) -> bool:
        """Writes a message that waited, bytes or a lease; False when it can't go yet."""
        cdef frame_t frame = frame_of(self.stream_id, MESSAGE, sequence, time_ns)
        cdef bint written
        frame.head.flags = <uint8_t>flags
        frame.head.prefix = <uint16_t>len(prefix)
        if isinstance(payload, Lease):
            frame.head.kind = LARGE
            written = self.lend(&frame, PyBytes_AS_STRING(prefix), <Lease>payload)
        else:
            written = self.give(&frame, PyBytes_AS_STRING(prefix), PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        if written:
            announce(self.outlet)
        return written

    def write_gap(self, int64_t first, int64_t last, int reason) -> bool:
        """Tells of messages that will not come; False when there is no room."""
        cdef frame_t frame = frame_of(self.stream_id, GAP, first, last)
        frame.head.extra = <uint32_t>reason
        if not self.may(first) or not self.put(&frame, NULL, 0, NULL, 0):
            return False
        self.sent_bytes += cost(GAP, 0)
        self.sent += 1
        self.next = last + 1
        announce(self.outlet)
        return True

    def write_hello(self, bytes publisher, bytes topic, int64_t next_sequence, int window) -> bool:
        """Says who publishes what; False when there is no room."""
        cdef frame_t frame = frame_of(self.stream_id, HELLO, next_sequence, now_ns())
        frame.head.extra = <uint32_t>window
        if not self.put(
            &frame, PyBytes_AS_STRING(publisher), PyBytes_GET_SIZE(publisher), PyBytes_AS_STRING(topic),
            PyBytes_GET_SIZE(topic),
        ):
            return False
        announce(self.outlet)
        return True

    def write_retired(self, int64_t number) -> None:
        """Tells that a segment of the pool will be named no more, as far as there is room."""
        cdef frame_t frame = frame_of(self.stream_id, RETIRED, 0, 0)
        if number in self.segments:
            self.segments.discard(number)
            frame.head.extra = <uint32_t>number
            self.put(&frame, NULL, 0, NULL, 0)
