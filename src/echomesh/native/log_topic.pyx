"""A topic as those who append and the committing thread see it."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memset

from echomesh.native.atomics cimport em_acquire_fence, em_load64, em_release_fence, em_store64, em_yield
from echomesh.native.log_water cimport Watermarks


cdef void move_end(topic_t *t, end_t end) noexcept nogil:
    # Only one thread at a time: the leader, or for a topic that is not journaled whoever appends to it.
    em_store64(&t.done_version, t.done_version + 1)
    em_release_fence()
    t.done_base = end.base
    t.done_position = end.position
    t.done_offset = end.offset
    t.done_time = end.time_ns
    em_store64(&t.done_version, t.done_version + 1)


cdef end_t read_end(topic_t *t) noexcept nogil:
    # The end after one commit, never half of the next one's: a checkpoint with the offset of one and the position of the
    # other would have the next writer put its first record over the last one.
    cdef int64_t version
    cdef end_t end
    while True:
        version = em_load64(&t.done_version)
        end.base = t.done_base
        end.position = t.done_position
        end.offset = t.done_offset
        end.time_ns = t.done_time
        em_acquire_fence()
        if not version & 1 and em_load64(&t.done_version) == version:
            return end
        em_yield()


cdef class Topic:
    """Where a topic's next record goes, as the writer and the committing thread see it."""

    def __cinit__(self, *args, **kwargs):
        memset(&self.core, 0, sizeof(self.core))
        self.core.fd = -1
        self.core.hold = INT64_MAX
        self.core.last_time = self.core.done_time = -1
        self.marks = []

    def make_room(self, int64_t needed) -> None:
        """Opens a segment with so many bytes of room behind `position`; the writer's business."""
        raise NotImplementedError

    def place(self, int64_t base, int64_t position, int64_t offset, int64_t last_time) -> None:
        """Sets the topic's end, as after recovery."""
        self.core.base = base
        self.core.position = position
        self.core.next_offset = offset
        self.core.last_time = last_time
        move_end(&self.core, end_t(base, position, offset, last_time))

    def bind(self, Watermarks water) -> None:
        """Which slot shows this topic's high-watermark."""
        self.core.slot = water.slot(self.core.number)

    def roll(self, int fd, int64_t base, int64_t position, int64_t limit) -> None:
        """Goes on in a new segment."""
        self.core.fd = fd
        self.core.base = base
        self.core.position = position
        self.core.limit = limit
        self.core.index_at = 0
        self.core.turn += 1

    def roll_back(self) -> None:
        """Forgets what was not committed."""
        self.core.next_offset = self.core.done_offset
        self.core.base = self.core.done_base
        self.core.position = self.core.done_position
        self.core.last_time = self.core.done_time
        self.core.fd = -1
        self.core.turn += 1
        self.core.limit = 0

    def reserve(self, int64_t position, int64_t records, int64_t time_ns) -> None:
        """Takes offsets and room for records that somebody else copies there; readers wait for them at `hold`."""
        self.core.position = position
        self.core.next_offset += records
        self.core.last_time = time_ns

    @property
    def number(self): return self.core.number
    @number.setter
    def number(self, uint32_t value): self.core.number = value
    @property
    def fd(self): return self.core.fd
    @fd.setter
    def fd(self, int value):
        self.core.fd = value
        self.core.turn += 1
    @property
    def limit(self): return self.core.limit
    @limit.setter
    def limit(self, int64_t value): self.core.limit = value
    @property
    def hold(self): return self.core.hold
    @hold.setter
    def hold(self, int64_t value): self.core.hold = value
    @property
    def next_offset(self): return self.core.next_offset
    @property
    def base(self): return self.core.base
    @property
    def position(self): return self.core.position
    @property
    def last_time(self): return self.core.last_time
    @property
    def ticket(self): return self.core.ticket
    @property
    def done(self):
        """(segment, position, next offset, last time) as of the last commit."""
        cdef end_t end = read_end(&self.core)
        return end.base, end.position, end.offset, end.time_ns
