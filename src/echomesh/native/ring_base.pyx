"""What every user of a ring has: its place in memory, its marks, its bells."""

cimport cython

from echomesh.errors import ClosedError, RingDamaged, UsageError
from echomesh.native.atomics cimport em_add64, em_load32, em_load64, em_store32, em_store64
from echomesh.native.ring_core cimport (
    CORRELATION, HEAD, HEAD_CACHE, HEARTBEAT, INTENT, READER_RINGS, TAIL, TRAILER, WRITER_RINGS, trailer,
)

TRAILER_LENGTH = TRAILER


# Without a clear by the garbage collector: a claim that dies in the same cycle must still find the memory.
@cython.no_gc_clear
cdef class RingBase:

    def __init__(self, Mapping mapping not None, int64_t offset=0, capacity=None, *, bint serial=False):
        cdef int64_t size = mapping.size - offset - TRAILER if capacity is None else capacity
        if size < 64 or size & (size - 1) or size > 1 << 30:
            raise RingDamaged(f"{mapping.path}: {size} bytes are no ring's capacity (a power of two from 64 to 1 GiB)")
        if offset < 0 or offset & 7 or offset > mapping.size - size - TRAILER:
            raise RingDamaged(f"{mapping.path}: a ring of {size} bytes at {offset} reaches beyond its {mapping.size} bytes")
        self.mapping = mapping
        self.offset = offset
        self.core.base = mapping.base + offset
        self.core.capacity = size
        self.core.mask = size - 1
        self.core.intent = trailer(&self.core, INTENT) if serial else NULL

    cdef int check_open(self) except -1:
        if self.closed:
            raise ClosedError(f"the ring {self.mapping.path} is closed")
        return 0

    cdef int check_writable(self) except -1:
        if self.closed:
            raise ClosedError(f"the ring {self.mapping.path} is closed")
        if not self.mapping.writable:
            raise UsageError(f"the ring {self.mapping.path} is mapped for reading only")
        return 0

    @property
    def capacity(self) -> int:
        """Bytes for records."""
        return self.core.capacity

    @property
    def max_message(self) -> int:
        """The largest body, in bytes."""
        return self.core.capacity >> 3

    @property
    def path(self) -> str:
        """The file that the ring is in."""
        return self.mapping.path

    @property
    def identity(self):
        """Device and inode of the file: another file of the same name has another one."""
        return self.mapping.identity

    def connect_reader(self, Doorbell bell) -> None:
        """For a writer: rings `bell` after each write, and says so in the ring."""
        self.check_writable()
        self.bell = bell
        em_store32(trailer(&self.core, WRITER_RINGS), bell is not None)

    def connect_writer(self, Doorbell bell) -> None:
        """For the reader: rings `bell` when a writer waits for room, and says so in the ring."""
        self.check_writable()
        self.writer_bell = bell
        em_store32(trailer(&self.core, READER_RINGS), bell is not None)

    cdef void rung(self) noexcept nogil:
        if not em_load32(trailer(&self.core, WRITER_RINGS)):
            em_store32(trailer(&self.core, WRITER_RINGS), 1)
        self.bell.notify()

    @property
    def head(self) -> int:
        """Bytes consumed since the ring was made."""
        return em_load64(trailer(&self.core, HEAD))

    @property
    def head_cache(self) -> int:
        """The head as the writers last saw it."""
        return em_load64(trailer(&self.core, HEAD_CACHE))

    @property
    def tail(self) -> int:
        """Bytes claimed since the ring was made."""
        return em_load64(trailer(&self.core, TAIL))

    @property
    def size(self) -> int:
        """Bytes claimed and not yet consumed."""
        cdef int64_t head = em_load64(trailer(&self.core, HEAD))
        return em_load64(trailer(&self.core, TAIL)) - head

    @property
    def writer_rings(self) -> bool:
        """Whether the ring's writer wakes its reader, so that it need not be polled."""
        return em_load32(trailer(&self.core, WRITER_RINGS)) != 0

    @property
    def heartbeat(self) -> int:
        """The reader's sign of life, in ms, as its owner wrote it."""
        return em_load64(trailer(&self.core, HEARTBEAT))

    @heartbeat.setter
    def heartbeat(self, int64_t value):
        self.check_writable()
        em_store64(trailer(&self.core, HEARTBEAT), value)

    def next_correlation_id(self) -> int:
        """A number that nobody else gets from this ring; the first is 0."""
        self.check_writable()
        return em_add64(trailer(&self.core, CORRELATION), 1)

    def close(self) -> None:
        """No more use of it from here; the memory goes when the last view of it has gone."""
        self.closed = True

    def __repr__(self):
        return f"{type(self).__name__}({self.mapping.path!r}, capacity={self.core.capacity})"
