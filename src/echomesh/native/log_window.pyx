"""The duplicate window: which events a topic has taken lately, known by 128-bit hashes of their source and id."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_FromStringAndSize

from echomesh.native.log_record cimport HEADER, padded
from echomesh.native.log_sums cimport em_identity, em_prefetch, em_source

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *start, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void *start, size_t size)
    int madvise(void *start, size_t size, int advice)
    void *mremap(void *start, size_t size, size_t wanted, int flags, void *target)
    int MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE
    void *MAP_FAILED

cdef enum:
    SMALLEST = 64
    LARGEST = 1 << 28       # as many as have a place in 32 bits, beside how far a slot was pushed aside
    ENTRY_BYTES = 40        # 32 in the ring and two slots of 4 bytes in the table
    FAR = 7
    STEPS = 2 * (FAR + 1)   # times `room`: where the tag begins in a slot
    AHEAD = 8
    LARGE_PAGE = 2 << 20


cdef void *spacious(size_t size) noexcept nogil:
    # The table is looked up anywhere: with large pages the processor finds each place without a walk through page tables.
    # From the system, as memory that malloc has had before stays in the small pages that it came in.
    cdef size_t whole, before
    cdef char *made
    if size < LARGE_PAGE:
        return malloc(size)
    whole = in_large_pages(size)
    made = <char *>mmap(NULL, whole + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if made == MAP_FAILED:
        return NULL
    before = (LARGE_PAGE - <size_t>made % LARGE_PAGE) % LARGE_PAGE
    if before:
        munmap(made, before)
    munmap(made + before + whole, LARGE_PAGE - before)
    madvise(made + before, whole, MADV_HUGEPAGE)
    return made + before


cdef void let_go(void *made, size_t size) noexcept nogil:
    # What `spacious` gave for so many bytes.
    if size < LARGE_PAGE:
        free(made)
    elif made != NULL:
        munmap(made, in_large_pages(size))


cdef void *widened(void *made, size_t size, size_t wanted) noexcept nogil:
    # What `spacious` gave, or NULL, with more room behind it; NULL, and nothing has changed, when there is none. Large ones
    # keep their pages: to have as many again, and to copy, kept an event loop from its work for milliseconds.
    cdef size_t whole = in_large_pages(size)
    cdef void *larger
    if wanted < LARGE_PAGE:
        return realloc(made, wanted)
    larger = spacious(wanted)
    if larger == NULL or made == NULL:
        return larger
    if size < LARGE_PAGE:
        memcpy(larger, made, size)
        free(made)
    elif mremap(made, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, larger) == MAP_FAILED:
        munmap(larger, in_large_pages(wanted))
        return NULL
    return larger


cdef size_t in_large_pages(size_t size) noexcept nogil:
    return (size + LARGE_PAGE - 1) // LARGE_PAGE * LARGE_PAGE


cdef size_t ring_bytes(int64_t room) noexcept nogil:
    return room * sizeof(seen_t)


cdef size_t table_bytes(int64_t room) noexcept nogil:
    return room * 2 * sizeof(uint32_t)


cdef class WindowBudget:
    """The memory that all windows of a node share."""

    def __init__(self, int64_t limit):
        self.limit = limit


def hashes_of(bytes key not None, const uint8_t[::1] rows) -> bytes:
    """By what a window with this key knows the events of records that stand one behind the other: 16 bytes for each, zeros
    for one that names no source and id.
    """
    cdef int64_t at = 0, size = rows.shape[0], count = 0
    cdef const char *base = <const char *>&rows[0] if size else NULL
    cdef em_source source
    cdef uint32_t length
    cdef bytes made
    cdef char *out
    cdef const uint8_t *secret = <const uint8_t *><char *>key
    if len(key) != 16:
        raise ValueError("the key has 16 bytes")
    memset(&source, 0, sizeof(source))
    made = PyBytes_FromStringAndSize(NULL, size // HEADER * 16)
    out = made
    with nogil:
        while at + HEADER <= size:
            memcpy(&length, base + at, 4)
            if length < HEADER or at + length > size:
                break
            if length == HEADER or not em_identity(
                    secret, &source, <const uint8_t *>base + at + HEADER, length - HEADER, <uint64_t *>(out + count * 16)):
                memset(out + count * 16, 0, 16)
            count += 1
            at += padded(length)
    return made[:count * 16]


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
        let_go(self.ring, ring_bytes(self.room))
        let_go(self.table, table_bytes(self.room))
        if self.budget is not None:
            self.budget.used -= self.room * ENTRY_BYTES

    def __len__(self):
        return self.last - self.first

    cdef void expect(self, const uint64_t *hash) noexcept nogil:
        # What `look` and `keep` will want of memory.
        if self.room:
            em_prefetch(&self.table[hash[0] & <uint64_t>(self.room * 2 - 1)])
            em_prefetch(&self.ring[self.last & (self.room - 1)])

    cdef int64_t slot_of(self, const uint64_t *hash) noexcept nogil:
        # The table's slot with this hash, or the empty one where it would go.
        #
        # A slot has three parts: the place in the ring plus one (0: empty), how far it was pushed aside (FAR: so far or
        # farther), and as many bits of the hash as there is room for. So the ring, which is large and cold, is hardly
        # ever looked at for nothing.
        cdef int64_t mask = self.room * 2 - 1, slot = <int64_t>(hash[0] & <uint64_t>mask)
        cdef uint32_t tags = <uint32_t>~(self.room * STEPS - 1), tag = <uint32_t>(hash[0] >> 32) & tags, held
        cdef seen_t *entry
        while True:
            held = self.table[slot]
            if not held:
                return slot
            if held & tags == tag:
                entry = &self.ring[(held & <uint32_t>mask) - 1]
                if entry.hash[0] == hash[0] and entry.hash[1] == hash[1]:
                    return slot
            slot = (slot + 1) & mask

    cdef void fill(self, int64_t slot, const uint64_t *hash, int64_t place) noexcept nogil:
        cdef int64_t mask = self.room * 2 - 1, aside = (slot - <int64_t>(hash[0] & <uint64_t>mask)) & mask
        cdef uint32_t tag = <uint32_t>(hash[0] >> 32) & <uint32_t>~(self.room * STEPS - 1)
        self.table[slot] = tag | <uint32_t>(min(aside, <int64_t>FAR) * (mask + 1)) | <uint32_t>(place + 1)

    cdef void remove(self, int64_t place) noexcept nogil:
        # Takes an entry out of the table, and moves up those that were pushed aside by it.
        cdef int64_t mask = self.room * 2 - 1, hole = self.slot_of(self.ring[place].hash), slot = hole, aside
        cdef uint32_t held
        cdef seen_t *entry
        while True:
            slot = (slot + 1) & mask
            held = self.table[slot]
            if not held:
                break
            aside = held // <uint32_t>(mask + 1) & FAR
            if aside == FAR:
                entry = &self.ring[(held & <uint32_t>mask) - 1]
                aside = (slot - <int64_t>(entry.hash[0] & <uint64_t>mask)) & mask
            if aside >= ((slot - hole) & mask):
                aside -= (slot - hole) & mask
                held &= ~<uint32_t>(FAR * (mask + 1))
                self.table[hole] = held | <uint32_t>(min(aside, <int64_t>FAR) * (mask + 1))
                hole = slot
        self.table[hole] = 0

    cdef void forget(self, int64_t now) noexcept nogil:
        while self.first < self.last and (
            self.last - self.first >= self.events or self.oldest_ns < now - self.age_ns
        ):
            self.remove_first()

    cdef void remove_first(self) noexcept nogil:
        cdef seen_t *entry
        self.remove(self.first & (self.room - 1))
        self.first += 1
        if self.first < self.last:
            entry = &self.ring[self.first & (self.room - 1)]
            self.oldest_ns = entry.time_ns
            # The next to go, perhaps soon.
            em_prefetch(&self.table[entry.hash[0] & <uint64_t>(self.room * 2 - 1)])

    cdef bint grow(self) noexcept nogil:
        # Twice as many, if the node still has memory for that.
        cdef int64_t room = self.room * 2 if self.room else SMALLEST, i
        cdef int64_t more = (room - self.room) * ENTRY_BYTES
        cdef seen_t *ring
        cdef uint32_t *table
        if self.budget.used + more > self.budget.limit or room > LARGEST:
            return False
        table = <uint32_t *>spacious(table_bytes(room))
        ring = <seen_t *>widened(self.ring, ring_bytes(self.room), ring_bytes(room)) if table != NULL else NULL
        if ring == NULL:
            let_go(table, table_bytes(room))
            return False
        memset(table, 0, table_bytes(room))
        for i in range(self.first, self.last):
            if i & self.room:
                ring[i & (room - 1)] = ring[i & (self.room - 1)]
        let_go(self.table, table_bytes(self.room))
        self.ring = ring
        self.table = table
        self.room = room
        self.budget.used += more
        self.enter_all()
        return True

    cdef void enter_all(self) noexcept nogil:
        # Fills the empty table.
        cdef int64_t i, mask = self.room - 1
        cdef seen_t *entry
        for i in range(self.first, self.last):
            em_prefetch(&self.table[self.ring[(i + AHEAD) & mask].hash[0] & <uint64_t>(self.room * 2 - 1)])
            entry = &self.ring[i & mask]
            self.fill(self.slot_of(entry.hash), entry.hash, i & mask)

    cdef int64_t look(self, const uint64_t *hash, int64_t now) noexcept nogil:
        # The offset of the event with this hash, or -1.
        cdef uint32_t held
        if self.room == 0:
            return -1
        self.forget(now)
        held = self.table[self.slot_of(hash)]
        return self.ring[(held & <uint32_t>(self.room * 2 - 1)) - 1].offset if held else -1

    cdef void keep(self, const uint64_t *hash, int64_t offset, int64_t now) noexcept nogil:
        # Remembers an event that `look` did not find.
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
            self.remove_first()
        if self.last == self.first:
            self.oldest_ns = now
        elif self.last_offset > offset:
            self.mixed = True
        self.last_offset = offset
        place = self.last & (self.room - 1)
        entry = &self.ring[place]
        entry.hash[0] = hash[0]
        entry.hash[1] = hash[1]
        entry.offset = offset
        entry.time_ns = now
        self.fill(self.slot_of(hash), hash, place)
        self.last += 1

    cdef void take(self, const uint8_t *event, int64_t size, int64_t offset, int64_t now) noexcept nogil:
        # Remembers an event, unless there is a twin of it, or it names no source and id.
        cdef uint64_t hash[2]
        if size > 0 and em_identity(self.key, &self.source, event, size, hash) and self.look(hash, now) < 0:
            self.keep(hash, offset, now)

    def find(self, const uint8_t[::1] event, int64_t now) -> int:
        """The offset of the event's twin in the window, -1 for none, -2 when the event names no source and id."""
        if event.shape[0] == 0 or not em_identity(self.key, &self.source, &event[0], event.shape[0], self.hash):
            return -2
        return self.look(self.hash, now)

    def enter(self, int64_t offset, int64_t now) -> None:
        """Remembers the event that `find` was last asked for, and did not find."""
        self.keep(self.hash, offset, now)

    def load(self, records, int64_t since) -> None:
        """Remembers the events of a segment that are not older than `since`."""
        cdef const uint8_t[::1] event
        cdef int64_t offset, time_ns
        cdef uint64_t hash[2]
        for offset, time_ns, _, data in records:
            event = data
            if time_ns < since or event.shape[0] == 0 or not em_identity(
                    self.key, &self.source, &event[0], event.shape[0], hash):
                continue
            if self.look(hash, time_ns) < 0:
                self.keep(hash, offset, time_ns)

    def load_hashes(self, const uint8_t[::1] hashes, int64_t first, int64_t now) -> None:
        """Remembers events by what `hashes_of` gave for them, the first with this offset."""
        cdef int64_t i, count = hashes.shape[0] // 16
        cdef uint64_t hash[2]
        with nogil:
            for i in range(count):
                memcpy(hash, &hashes[min(i + AHEAD, count - 1) * 16], 16)
                self.expect(hash)
                memcpy(hash, &hashes[i * 16], 16)
                if (hash[0] or hash[1]) and self.look(hash, now) < 0:
                    self.keep(hash, first + i, now)

    def drop_from(self, int64_t offset) -> None:
        """Forgets events with this offset and later ones: they were not committed."""
        while self.last > self.first and self.ring[(self.last - 1) & (self.room - 1)].offset >= offset:
            self.remove((self.last - 1) & (self.room - 1))
            self.last -= 1
        if self.mixed and self.room:
            self.sift(offset)
        if self.last > self.first:
            self.oldest_ns = self.ring[self.first & (self.room - 1)].time_ns
            self.last_offset = self.ring[(self.last - 1) & (self.room - 1)].offset

    cdef void sift(self, int64_t offset) noexcept nogil:
        # The entries below this offset, and the table made anew.
        cdef int64_t i, kept = self.first
        for i in range(self.first, self.last):
            if self.ring[i & (self.room - 1)].offset < offset:
                self.ring[kept & (self.room - 1)] = self.ring[i & (self.room - 1)]
                kept += 1
        self.last = kept
        memset(self.table, 0, table_bytes(self.room))
        self.enter_all()
