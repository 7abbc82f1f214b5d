"""The hot path of a publisher: from the caller's buffer to the rings of its subscribers, in the caller's thread."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcpy

from echomesh.errors import ClosedError, UsageError
from echomesh.native.atomics cimport em_now_ns
from echomesh.native.data_frames cimport LARGE, MESSAGE, announce, frame_of, frame_t, now_ns

cdef enum:
    COPY_WITHOUT_GIL = 65536
    ANNOUNCE_EACH = 64      # of many messages: the reader begins while the rest is written
    HOT_BYTES = 1 << 22     # lent to a subscriber; of more than that some is no longer in the cache
    HOT_MESSAGES = 6        # so many may be on their way in any case
    COOL_NS = 100000
    COOL_EACH = 256
    MOST_PATIENCE = 8


cdef class Sender:
    """What a publisher sends with. Derived classes say what becomes of a message that can't go at once.

    `overflowed` is called with the subscribers that can't have it now, `room` when the pool has no place for it, `unroomed`
    when there is none after that; `settle` waits for what these leave to do.
    """

    def __init__(self, Reading reading not None, Pool pool not None, int64_t small):
        self.reading = reading
        self.home = reading.home
        self.pool = pool
        self.small = small
        self.live = []
        self.patience = 1

    @property
    def targets(self) -> tuple:
        """The subscribers that are sent to."""
        return tuple(self.live)

    def join(self, Target target not None) -> list:
        """Sends to one more from now on; the history that it is to have first.

        It begins as slow, so that nothing overtakes the history.
        """
        cdef list before = list(self.history) if self.history is not None else []
        target.next = before[0][0] if before else self.sequence
        target.lag()
        self.live = [*self.live, target]
        return before

    def part(self, Target target not None) -> bool:
        """Sends to it no more; False when it was not sent to."""
        if target not in self.live:
            return False
        self.live = [one for one in self.live if one is not target]
        return True

    cdef void announce_all(self) noexcept:
        cdef Target target
        for target in self.live:
            announce(target.outlet)

    cdef Lease place(self, int64_t length, timeout):
        # In the pool, for a large message; None where there is none and nobody waits for it.
        cdef Lease found
        cdef Target target
        cdef int64_t hot = max(<int64_t>HOT_BYTES, HOT_MESSAGES * length)
        for target in self.live:
            if target.lent:     # the place that was given back last is the one that is still in the cache
                self.reading.read_now(0)
                break
        if len(self.live) == 1 and (<Target>self.live[0]).lent >= hot:
            self.cool(<Target>self.live[0], hot)
        found = self.pool.lease(length)
        return found if found is not None else self.room(length, timeout)

    def cool(self, Target target not None, int64_t hot) -> None:
        """Waits a moment for a place that was used just now: memory that is in the cache takes half the time to write.

        Who keeps its messages gives none back; after some waits in vain there are none for some time.
        """
        cdef int64_t until
        if self.patience <= 0:
            self.patience = 1 if self.sequence % COOL_EACH == 0 else 0
            return
        until = em_now_ns() + COOL_NS
        while target.lent >= hot and em_now_ns() < until:
            if not self.reading.read_now(0):
                self.reading.lock.await_free()
        self.patience = min(self.patience + 1, MOST_PATIENCE) if target.lent < hot else self.patience - 1

    cdef bint pumped(self, Target target) except -1:
        # Credit may be there and nobody has read it. Others may have sent meanwhile: then it is not this message's turn.
        cdef int64_t before = self.home.credited
        announce(target.outlet)
        self.reading.read_now(0)
        return self.home.credited != before

    cdef object push(self, data, int flags, bytes prefix, timeout, bint quiet, int64_t now):
        # One message to all; None, or what `overflowed` says when some can't have it now.
        cdef Py_buffer view
        cdef frame_t frame
        cdef Target target
        cdef list pending = None
        cdef bint plain = PyBytes_CheckExact(data)
        cdef Lease lease
        cdef object payload = None
        if self.state or not self.home.alive:
            self.refuse()
        if plain:
            view.buf = PyBytes_AS_STRING(data)
            view.len = PyBytes_GET_SIZE(data)
        else:
            if not PyObject_CheckBuffer(data):
                return self.push(self.buffer_of(data), flags, prefix, timeout, quiet, now)
            try:
                PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            except (BufferError, ValueError):       # numpy's is a ValueError
                raise UsageError("only contiguous memory can be sent: make a copy of this view or array") from None
        try:
            if view.len + len(prefix) > self.small:
                lease = self.place(view.len, timeout)
                if lease is None:
                    return self.unroomed(data, flags, prefix, timeout)
                if view.len < COPY_WITHOUT_GIL:
                    memcpy(lease.start, view.buf, view.len)
                else:
                    with nogil:
                        memcpy(lease.start, view.buf, view.len)
                lease.sealed = True
                return self.push_lease(lease, flags, prefix, timeout, quiet)
            frame = frame_of(0, MESSAGE, self.sequence, now)
            frame.head.flags = <uint8_t>flags
            frame.head.prefix = <uint16_t>PyBytes_GET_SIZE(prefix)
            self.sequence += 1
            self.byte_count += view.len
            self.home.activity += 1
            if self.history is not None:
                payload = data if plain else PyBytes_FromStringAndSize(<char *>view.buf, view.len)
                self.history.append((frame.head.sequence, now, flags, prefix, payload))
            for target in self.live:
                if target.lags or not (
                    target.give(&frame, PyBytes_AS_STRING(prefix), <char *>view.buf, view.len) or self.pumped(target)
                    and target.give(&frame, PyBytes_AS_STRING(prefix), <char *>view.buf, view.len)
                ):
                    target.lag()
                    if pending is None:
                        pending = []
                    pending.append(target)
                elif not quiet:
                    announce(target.outlet)
            if pending is None:
                return None
            if payload is None:
                payload = data if plain else PyBytes_FromStringAndSize(<char *>view.buf, view.len)
        finally:
            if not plain:
                PyBuffer_Release(&view)
        self.announce_all()
        return self.overflowed(pending, frame.head.sequence, now, flags, prefix, payload, timeout)

    cdef object push_lease(self, Lease lease, int flags, bytes prefix, timeout, bint quiet):
        cdef int64_t now = now_ns()
        cdef frame_t frame = frame_of(0, LARGE, self.sequence, now)
        cdef Target target
        cdef list pending = None
        frame.head.flags = <uint8_t>flags
        frame.head.prefix = <uint16_t>PyBytes_GET_SIZE(prefix)
        self.sequence += 1
        self.byte_count += lease.length
        self.home.activity += 1
        if self.history is not None:
            self.history.append((frame.head.sequence, now, flags, prefix, lease))
        for target in self.live:
            if target.lags or not (
                target.lend(&frame, PyBytes_AS_STRING(prefix), lease) or self.pumped(target)
                and target.lend(&frame, PyBytes_AS_STRING(prefix), lease)
            ):
                target.lag()
                if pending is None:
                    pending = []
                pending.append(target)
            elif not quiet:
                announce(target.outlet)
        if pending is None:
            return None
        self.announce_all()
        return self.overflowed(pending, frame.head.sequence, now, flags, prefix, lease, timeout)

    def send(self, data, *, timeout=None) -> None:
        """Sends one message to all subscribers."""
        cdef object rest = self.push(data, 0, b"", timeout, False, now_ns())
        if rest is not None:
            self.settle(rest)

    def skip(self) -> int:
        """The number of a message that nobody gets."""
        self.sequence += 1
        return self.sequence - 1

    def post(self, data, int flags=0, bytes prefix=b"", timeout=None):
        """Sends one message; None, or what is left to do where a subscriber can't have it now."""
        return self.push(data, flags, prefix, timeout, False, now_ns())

    def post_lease(self, Lease lease not None, int flags=0, bytes prefix=b"", timeout=None):
        """Sends a message that is in the pool already."""
        if self.state or not self.home.alive:
            self.refuse()
        return self.push_lease(lease, flags, prefix, timeout, False)

    def post_many(self, messages, timeout=None):
        """Sends messages in order; None, or (what is left to do, iterator over the messages that follow)."""
        cdef int64_t count = 0, now = now_ns()
        cdef object rest
        iterator = iter(messages)
        try:
            for data in iterator:
                rest = self.push(data, 0, b"", timeout, True, now)
                if rest is not None:
                    return rest, iterator
                count += 1
                if count % ANNOUNCE_EACH == 0:
                    self.announce_all()
                    now = now_ns()
        finally:
            self.announce_all()
        return None

    def buffer_of(self, data):
        """The bytes of what is no buffer itself."""
        raise UsageError(f"a {type(data).__name__} can't be sent: give bytes, a memoryview, an array or an Event")

    def refuse(self):
        """Raises what keeps this publisher from sending."""
        raise ClosedError("this publisher is closed")
