"""The many-to-one ring of Agrona: any number of writers in any number of processes, one reader, no locks."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_REFCNT
from libc.string cimport memcpy

from echomesh.errors import BusyError, MessageTooLarge, RingDamaged, UsageError, ViewKept
from echomesh.native.atomics cimport em_fence, em_load32, em_load64, em_swap32
from echomesh.native.ring_core cimport (
    DAMAGED, HEAD, HEADER, IDLE, PADDING, ROOM_WANTED, TAIL, align8, ring_begin, ring_claim, ring_consume,
    ring_has_room, ring_heal, ring_publish, ring_readable, ring_record, ring_unblock, trailer,
)
from echomesh.native.ring_base import TRAILER_LENGTH
from echomesh.native.ring_views cimport Claim, Window

cdef enum:
    COPY_WITHOUT_GIL = 16384    # below this the copy is cheaper than letting the GIL go
    NO_LIMIT = 0x7FFFFFFF


cdef int end_view(object view) except -1:
    # A view that somebody else has too must not show what comes next; one that is the caller's alone ends with it.
    if Py_REFCNT(view) > 1:
        try:
            view.release()
        except BufferError:
            pass
    return 0


cdef class Sink:
    # Compiled code that takes messages in place, one `take` each; True ends the reading behind it.

    cdef bint take(self, Ring ring, int32_t kind, char *body, int64_t length) except -1:
        return False


@cython.no_gc_clear
cdef class Ring(RingBase):
    """A ring in mapped memory. `write` and `claim` are for its writers, `read` and `drain` for its one reader.

    `offset` is where the ring starts in the file, `capacity` its power of two; without one it fills the file.
    `serial` is for writers that take turns (one thread, or processes under a lock): each notes in the ring what it is about
    to claim, so that the next one, or the reader once they are dead, can `heal` what a killed one left.
    """

    # Writing

    cdef int64_t claim_for(self, int64_t length, int64_t kind) except -3:
        cdef int64_t index
        self.check_writable()
        if kind < 0 or kind > 0x7FFFFFFF:
            raise UsageError(f"a message type is 0 to 2147483647, not {kind}")
        if length > self.core.capacity >> 3 or length < 0:
            raise MessageTooLarge(length, self.core.capacity >> 3)
        if self.core.intent != NULL and em_load64(self.core.intent + 16) != IDLE:
            # There is room for one intent: a second claim would make the first one impossible to heal.
            raise BusyError(f"{self.mapping.path}: a claim is open, or was left by a dead writer and not healed")
        index = ring_claim(&self.core, length)
        if index == DAMAGED:
            raise RingDamaged(f"{self.mapping.path}: head and tail can't be true")
        if index >= 0:
            ring_begin(&self.core, index, <int32_t>kind, length)
        return index

    cdef bint put(self, int32_t kind, const char *prefix, int64_t prefix_length, object data) except -1:
        # One record of the prefix and the data, not announced yet; False when there is no room.
        cdef Py_buffer view
        cdef int64_t index, length
        cdef char *body
        cdef bint plain = PyBytes_CheckExact(data)
        if plain:
            view.buf = PyBytes_AS_STRING(data)
            view.len = PyBytes_GET_SIZE(data)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            length = prefix_length + view.len
            index = self.claim_for(length, kind)
            if index < 0:
                return False
            body = self.core.base + index + HEADER
            memcpy(body, prefix, prefix_length)
            if view.len < COPY_WITHOUT_GIL:
                memcpy(body + prefix_length, view.buf, view.len)
            else:
                with nogil:
                    memcpy(body + prefix_length, view.buf, view.len)
            ring_publish(&self.core, index, length)
            return True
        finally:
            if not plain:
                PyBuffer_Release(&view)

    def write(self, int32_t kind, data) -> bool:
        """Writes one message; False when there is no room for it now."""
        cdef bint written = self.put(kind, NULL, 0, data)
        if self.bell is not None and written:
            self.rung()
        return written

    def write_frame(self, int32_t kind, int64_t stream, data=b"") -> bool:
        """Writes one message whose body is an int64 and then the data."""
        cdef bint written = self.put(kind, <char *>&stream, 8, data)
        if self.bell is not None and written:
            self.rung()
        return written

    def write_many(self, int32_t kind, messages) -> int:
        """Writes messages in order until one finds no room, and tells how many; the reader is woken once."""
        cdef int64_t count = 0
        try:
            for data in messages:
                if not self.put(kind, NULL, 0, data):
                    break
                count += 1
        finally:
            if self.bell is not None and count:
                self.rung()
        return count

    def claim(self, int32_t kind, int64_t length):
        """Room for a message, to be filled in place and then committed or aborted; None when there is no room."""
        cdef int64_t index = self.claim_for(length, kind)
        cdef Claim claim
        if index < 0:
            return None
        claim = Claim.__new__(Claim)
        claim.ring = self
        claim.index = index
        claim.length = length
        return claim

    def has_room(self, int64_t length) -> bool:
        """Whether a body of that length would be taken now."""
        self.check_writable()
        return ring_has_room(&self.core, length)

    # Reading

    cdef int finish(self, int64_t head, int64_t count) except -1:
        self.reading = False
        if count:
            ring_consume(&self.core, head, count)
            if self.writer_bell is not None:
                em_fence()
                if em_load32(trailer(&self.core, ROOM_WANTED)) and em_swap32(trailer(&self.core, ROOM_WANTED), 0):
                    self.writer_bell.wake_all()
        return 0

    cdef object view(self, char *start, int64_t length):
        # A view of ring memory; `end_view` and `kept` must follow.
        if self.window is None:
            self.window = Window(self)
        self.window.start = start
        self.window.length = length
        return PyMemoryView_FromObject(self.window)

    cdef bint kept(self) except -1:
        # Whether somebody keeps views beyond their call; the window that they look through is then never used again.
        if self.window.exports == 0:
            return False
        self.window = None
        return True

    cdef object call_in_place(self, object handler, int32_t kind, char *body, int64_t length):
        view = self.view(body, length)
        try:
            done = handler(kind, view)
        except BaseException:
            end_view(view)
            view = None
            self.kept()     # the handler's own error goes first: its traceback alone may be what keeps the view
            raise
        end_view(view)
        view = None
        if self.kept():
            raise ViewKept("a handler kept a view of the ring beyond its call: keep bytes(view) instead")
        return done

    cdef object deliver(self, object handler, Sink sink, int64_t limit):
        # To the sink, else to the handler, else into a list.
        cdef int64_t head, position, end, length, count = 0
        cdef int32_t kind
        cdef char *record
        self.check_writable()
        if self.reading:
            raise BusyError("this ring is being read already: a ring has one reader")
        head = position = em_load64(trailer(&self.core, HEAD))
        end = head + self.core.capacity - (head & self.core.mask)
        if head & 7 or head < 0:
            raise RingDamaged(f"{self.mapping.path}: its head can't be true")
        self.reading = True
        messages = [] if handler is None and sink is None else None
        try:
            while position < end and count < limit:
                length = ring_record(&self.core, position & self.core.mask)
                if length <= 0:
                    if length == DAMAGED and count == 0:
                        raise RingDamaged(f"{self.mapping.path}: no record can be at {position & self.core.mask}")
                    break
                record = self.core.base + (position & self.core.mask)
                position += align8(length)
                kind = em_load32(record + 4)
                if kind == PADDING:
                    continue
                count += 1
                if sink is not None:
                    if sink.take(self, kind, record + HEADER, length - HEADER):
                        break
                elif handler is None:
                    messages.append((kind, PyBytes_FromStringAndSize(record + HEADER, length - HEADER)))
                elif self.call_in_place(handler, kind, record + HEADER, length - HEADER):
                    break
        finally:
            self.finish(head, position - head)
        return count if messages is None else messages

    def read(self, handler, int64_t limit=NO_LIMIT) -> int:
        """Calls `handler(type, view)` for each message up to the ring's end, and tells how many.

        The view is the message in place and lives no longer than the call. A handler that returns something true ends the
        reading behind its message; one that raises has consumed its message, and later ones stay.
        """
        return self.deliver(handler, None, limit)

    def drain(self, int64_t limit=NO_LIMIT) -> list:
        """Takes up to `limit` messages as a list of (type, bytes)."""
        messages = self.deliver(None, None, limit)
        if len(messages) < limit and ring_readable(&self.core):     # behind the wrap
            try:
                messages += self.deliver(None, None, limit - len(messages))
            except RingDamaged:
                if not messages:    # what was taken is handed out first; the next call says it
                    raise
        return messages

    def readable(self) -> bool:
        """Whether a message or a padding waits at the head."""
        self.check_open()
        return ring_readable(&self.core)

    def unblock(self, *, bint to_tail=False) -> bool:
        """Pads the record at the head that a dead writer left unpublished; call it only when no writer can be writing.

        Nothing is done while nothing is published behind it, unless `to_tail`: then all claimed places are dead ones.
        """
        self.check_writable()
        return ring_unblock(&self.core, to_tail)

    def blocked(self) -> bool:
        """Whether the head waits for a record that is claimed and not published."""
        cdef int64_t head = em_load64(trailer(&self.core, HEAD))
        return head != em_load64(trailer(&self.core, TAIL)) and not ring_readable(&self.core)

    def heal(self) -> bool:
        """Pads what the last holder of the writers' lock left unpublished when it died; call it under that lock."""
        cdef bint healed
        self.check_writable()
        if self.core.intent == NULL:
            raise UsageError("only a ring with intents can be healed")
        healed = ring_heal(&self.core)
        # The dead one may have published and not rung, and a reader must skip the padding to make room.
        if self.bell is not None and ring_readable(&self.core):
            self.rung()
        return healed
