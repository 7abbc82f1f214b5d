"""The duplicate window: which events a topic has taken lately, known by 128-bit hashes of their source and id."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from echomesh.native.log_sums cimport em_identity

cdef enum:
    SMALLEST = 64
    ENTRY_BYTES = 40        # 32 in the ring and two slots of 4 bytes in the table


cdef class WindowBudget:
    """The memory that all windows of a node share."""

    def __init__(self, int64_t limit):
        self.limit = limit


cdef class Window:
    """The last events of one topic: at most `events` of them, none older than `age_ns`."""

    def __init__(self, WindowBudget budget, bytes key, int64_t events, int64_t age_ns):
        if len(key) != 16:
            raise ValueError("the key has 16 bytes")
        self.budget = budget
        self.events = events
        self.age_ns = age_ns
        memcpy(self.key, <char *>key, 16)

    def __dealloc__(self):
        free(self.ring)
        free(self.table)
        if self.budget is not None:
            self.budget.used -= self.room * ENTRY_BYTES

    def __len__(self):
        return self.last - self.first

    cdef int64_t slot_of(self, uint64_t *hash) noexcept nogil:
        # The table's slot with this hash, or the empty one where it would go.
        cdef int64_t mask = self.room * 2 - 1, slot = <int64_t>(hash[0] & <uint64_t>mask)
        cdef seen_t *entry
        while self.table[slot]:
            entry = &self.ring[self.table[slot] - 1]
            if entry.hash[0] == hash[0] and entry.hash[1] == hash[1]:
                return slot
            slot = (slot + 1) & mask
        return slot

    cdef void remove(self, int64_t place) noexcept nogil:
        # Takes an entry out of the table, and moves up those that were pushed aside by it.
        cdef int64_t mask = self.room * 2 - 1, hole = self.slot_of(self.ring[place].hash), slot = hole, home
        self.table[hole] = 0
        while True:
            slot = (slot + 1) & mask
            if not self.table[slot]:
                return
            home = <int64_t>(self.ring[self.table[slot] - 1].hash[0] & <uint64_t>mask)
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                self.table[hole] = self.table[slot]
                self.table[slot] = 0
                hole = slot

    cdef void forget(self, int64_t now) noexcept nogil:
        while self.first < self.last and (
            self.last - self.first >= self.events
            or self.ring[self.first & (self.room - 1)].time_ns < now - self.age_ns
        ):
            self.remove(self.first & (self.room - 1))
            self.first += 1

    cdef bint grow(self) noexcept nogil:
        # Twice as many, if the node still has memory for that.
        cdef int64_t room = self.room * 2 if self.room else SMALLEST, i
        cdef int64_t more = (room - self.room) * ENTRY_BYTES
        cdef seen_t *ring
        cdef uint32_t *table
        if self.budget.used + more > self.budget.limit:
            return False
        ring = <seen_t *>calloc(room, sizeof(seen_t))
        table = <uint32_t *>calloc(room * 2, 4)
        if ring == NULL or table == NULL:
            free(ring)
            free(table)
            return False
        for i in range(self.first, self.last):
            ring[i & (room - 1)] = self.ring[i & (self.room - 1)]
        free(self.ring)
        free(self.table)
        self.ring = ring
        self.table = table
        self.room = room
        self.budget.used += more
        for i in range(self.first, self.last):
            self.table[self.slot_of(ring[i & (room - 1)].hash)] = <uint32_t>(i & (room - 1)) + 1
        return True

    cdef int64_t look(self, const uint8_t *event, int64_t size, int64_t now) noexcept nogil:
        cdef int64_t slot
        if not em_identity(self.key, event, size, self.hash):
            return -2
        if self.room == 0:
            return -1
        self.forget(now)
        slot = self.slot_of(self.hash)
        return self.ring[self.table[slot] - 1].offset if self.table[slot] else -1

    cdef void keep(self, int64_t offset, int64_t now) noexcept nogil:
        cdef int64_t place
        cdef seen_t *entry
        if self.room:
            self.forget(now)
        if self.last - self.first == self.room and not self.grow():
            # No memory for more: the oldest goes early, and that is told.
            self.shrunk = True
            self.budget.shrunk += 1
            if self.room == 0:
                return
            self.remove(self.first & (self.room - 1))
            self.first += 1
        if self.last > self.first and self.ring[(self.last - 1) & (self.room - 1)].offset > offset:
            self.mixed = True
        place = self.last & (self.room - 1)
        entry = &self.ring[place]
        entry.hash[0] = self.hash[0]
        entry.hash[1] = self.hash[1]
        entry.offset = offset
        entry.time_ns = now
        self.table[self.slot_of(self.hash)] = <uint32_t>place + 1
        self.last += 1

    def find(self, const uint8_t[::1] event, int64_t now) -> int:
        """The offset of the event's twin in the window, -1 for none, -2 when the event names no source and id."""
        return self.look(&event[0], event.shape[0], now) if event.shape[0] else -2

    def enter(self, int64_t offset, int64_t now) -> None:
        """Remembers the event that `find` was last asked for, and did not find."""
        self.keep(offset, now)

    def load(self, records, int64_t since) -> None:
        """Remembers the events of a segment that are not older than `since`."""
        cdef const uint8_t[::1] event
        cdef int64_t offset, time_ns
        for offset, time_ns, _, data in records:
            event = data
            if time_ns >= since and event.shape[0] and self.look(&event[0], event.shape[0], time_ns) == -1:
                self.keep(offset, time_ns)

    def drop_from(self, int64_t offset) -> None:
        """Forgets events with this offset and later ones: they were not committed."""
        while self.last > self.first and self.ring[(self.last - 1) & (self.room - 1)].offset >= offset:
            self.remove((self.last - 1) & (self.room - 1))
            self.last -= 1
        if self.mixed and self.room:
            self.sift(offset)

    cdef void sift(self, int64_t offset) noexcept nogil:
        # The entries below this offset, and the table made anew.
        cdef int64_t i, kept = self.first
        for i in range(self.first, self.last):
            if self.ring[i & (self.room - 1)].offset < offset:
                self.ring[kept & (self.room - 1)] = self.ring[i & (self.room - 1)]
                kept += 1
        self.last = kept
        memset(self.table, 0, self.room * 2 * sizeof(uint32_t))
        for i in range(self.first, self.last):
            self.table[self.slot_of(self.ring[i & (self.room - 1)].hash)] = <uint32_t>(i & (self.room - 1)) + 1
