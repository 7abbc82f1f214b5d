"""The shared pool: where a publisher puts large messages once for all of its subscribers.

Only the publisher knows which slots are free, in memory of its own; subscribers map the files for reading alone.
"""

import os

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo

from echomesh.errors import ClosedError, MessageTooLarge, StorageFull, ViewKept

cdef enum:
    PAGE = 4096
    FIRST_BYTES = 1 << 21       # of the first segment of a size
    MOST_BYTES = 1 << 26        # of one with more than a slot
    FEWEST_SLOTS = 4
    MOST_SLOTS = 256


cdef int64_t slot_size(int64_t length) noexcept:
    # Four sizes for each doubling: a slot is at most a quarter larger than what it holds.
    cdef int64_t step = PAGE
    while step * 8 <= length:
        step *= 2
    return (max(length, 1) + step - 1) // step * step


# Part of no cycle: it must be whole for as long as a lease refers to it.
@cython.no_gc
cdef class Segment:
    """One file of a pool: slots of one size."""

    def __repr__(self):
        return f"Segment({self.number}, {self.mapping.size // self.slot_bytes} slots of {self.slot_bytes} bytes)"


@cython.no_gc
cdef class Lease:
    """A slot of the pool for one message; it is free again when nobody has the lease any more.

    It is a writable buffer until it is sealed.
    """

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.sealed:
            raise ClosedError("this loan was sent: its memory belongs to the subscribers now")
        PyBuffer_FillInfo(view, self, self.start, self.length, False, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def seal(self, int64_t length) -> None:
        """The message is written, and `length` bytes long; no more views of it are given."""
        if self.exports:
            raise ViewKept("views of this loan are still in use: release them before it is sent")
        if length < 0 or length > self.length:
            raise MessageTooLarge(length, self.length, "this loan")
        self.length = length
        self.sealed = True

    def __dealloc__(self):
        if self.segment is not None:
            self.segment.used -= 1
            self.segment.free.append(self.token)


cdef class Pool:
    """The slots of one publisher, in files of `directory` that are numbered by `number`, `limit` bytes at the most.

    `on_retired(segment)` is called when a segment is given up.
    """

    def __init__(self, directory, number, int64_t limit):
        self.directory = directory
        self.number = number
        self.limit = limit
        self.segments = {}
        self.free = {}

    cpdef Lease lease(self, int64_t length):
        """A slot for so many bytes, or None while there is none; one that can never be is an error."""
        cdef int64_t slot_bytes = slot_size(length), token
        cdef list free
        cdef Lease made
        cdef Segment segment
        if slot_bytes > self.limit:
            raise MessageTooLarge(length, self.limit, "this publisher's pool (its option `pool`)")
        free = <list>self.free.get(slot_bytes)
        if free is None or not free:
            if not self.grow(slot_bytes):
                return None
            free = <list>self.free[slot_bytes]
        # The slot that was given back last: its memory is still in the cache.
        token = free.pop()
        segment = <Segment>self.segments[token >> 32]
        made = Lease.__new__(Lease)
        made.token = token
        made.offset = (token & 0xFFFFFFFF) * slot_bytes
        made.start = segment.mapping.base + made.offset
        made.length = length
        made.segment = segment
        segment.used += 1
        return made

    cdef bint grow(self, int64_t slot_bytes) except -1:
        cdef int64_t slots, before = 0
        cdef Segment segment
        for segment in self.segments.values():
            if segment.slot_bytes == slot_bytes:
                before += segment.mapping.size // slot_bytes
        slots = min(max(FIRST_BYTES // slot_bytes, FEWEST_SLOTS, before), max(1, MOST_BYTES // slot_bytes), MOST_SLOTS)
        if self.total + slots * slot_bytes > self.limit:
            self.retire(slot_bytes)
            slots = min(slots, (self.limit - self.total) // slot_bytes)
        while slots > 0:
            try:
                self.add(slot_bytes, slots)
                return True
            except StorageFull:
                if slots == 1 and self.total == 0:
                    raise
                slots //= 2
        return False

    def add(self, int64_t slot_bytes, int64_t slots):
        """One more segment."""
        cdef Segment made = Segment.__new__(Segment)
        cdef int64_t slot
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        number = self.number()
        made.mapping = Mapping.create(os.path.join(self.directory, str(number)), slot_bytes * slots)
        made.number = number
        made.slot_bytes = slot_bytes
        made.free = <list>self.free.setdefault(slot_bytes, [])
        self.segments[number] = made
        self.total += made.mapping.size
        for slot in range(slots - 1, -1, -1):
            made.free.append(made.number << 32 | slot)

    def retire(self, int64_t but=0):
        """Gives up all segments of which nothing is in use, and which have not slots of `but` bytes."""
        for segment in [one for one in self.segments.values() if not one.used and one.slot_bytes != but]:
            self.drop(segment)

    def drop(self, Segment segment not None):
        """Gives a segment up: its file goes now, its memory with the last who has it mapped."""
        del self.segments[segment.number]
        free = [token for token in segment.free if token >> 32 != segment.number]
        segment.free[:] = free
        self.total -= segment.mapping.size
        os.unlink(segment.mapping.path)
        if self.on_retired is not None:
            self.on_retired(segment.number)

    @property
    def used(self) -> int:
        """How many slots are in use."""
        return sum(segment.used for segment in self.segments.values())

    def close(self) -> None:
        """Removes all files; what subscribers still look at stays in their memory."""
        self.on_retired = None
        for segment in list(self.segments.values()):
            self.drop(segment)
