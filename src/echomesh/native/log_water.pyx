"""High-watermarks: up to where each topic can be read, in a file that writer and readers map."""

import os
import random

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from echomesh.errors import LogDamaged
from echomesh.native.atomics cimport (
    em_acquire_fence, em_add32, em_cas64, em_fence, em_load32, em_load64, em_now_ns, em_store32, em_store64,
)
from echomesh.native.doorbell cimport SLEEPERS, WORD, bell_sleep, bell_wake
from echomesh.native.mapping cimport Mapping

MAGIC = b"EMWATER\x01"
VERSION = 1

cdef enum:
    SIGNAL_CHECK_NS = 200000000     # a sleeper looks this often whether Ctrl-C came
    READ_ONLY_POLL_NS = 2000000     # who may not write can't say that it sleeps


cdef void show(char *slot, int64_t high) noexcept nogil:
    # Never backwards: a commit and the end of a staged copy may both be here, and readers have seen the higher one.
    cdef int64_t before = em_load64(slot + SLOT_HIGH)
    while before < high and not em_cas64(slot + SLOT_HIGH, before, high):
        before = em_load64(slot + SLOT_HIGH)


cdef int64_t high_in(char *slot, int32_t moves) noexcept nogil:
    # While `moves` is what it is. A number may come around again after two thousand million moves, long after this one.
    if moves & 1 and em_load32(slot + SLOT_MOVE) == moves:
        return em_load64(slot + SLOT_BEFORE)
    return em_load64(slot + SLOT_HIGH)


cdef void ring_slot(char *slot) noexcept nogil:
    # A fence stands between what was shown and this look at who sleeps.
    if em_load32(slot + SLOT_BELL + SLEEPERS):
        bell_wake(slot + SLOT_BELL)


cdef void publish(char *slot, int64_t high) noexcept nogil:
    show(slot, high)
    em_fence()
    ring_slot(slot)


cdef void ring_all(char *base) noexcept nogil:
    # Counts always: who looks at many topics can't look at all of them again when it is about to sleep. The word is what
    # they look at, so it moves before the look at who sleeps, and once more when `bell_wake` takes the mark.
    em_add32(base + WATER_BELL + WORD, 1)
    em_fence()
    if em_load32(base + WATER_BELL + SLEEPERS):
        bell_wake(base + WATER_BELL)


cdef class Watermarks:
    """The mapped file. One process writes it, any number read it and sleep on it."""

    @staticmethod
    def create(path, bytes log_id, bytes boot_id, int slots):
        """Makes the file anew, beside `path` and then moved there: nobody sees half of one."""
        if len(log_id) != 16 or len(boot_id) != 16 or slots < 1:
            raise ValueError("ids have 16 bytes, and there is at least one slot")
        text = os.fspath(path)
        fresh = text + ".new"
        if os.path.exists(fresh):
            os.unlink(fresh)
        cdef Watermarks made = _over(Mapping.create(fresh, WATER_HEADER + <int64_t>slots * WATER_SLOT))
        memcpy(made.base, <char *><bytes>MAGIC, 8)
        em_store32(made.base + 8, VERSION)
        em_store32(made.base + WATER_SLOTS, slots)
        memcpy(made.base + WATER_LOG_ID, <char *>log_id, 16)
        memcpy(made.base + WATER_BOOT_ID, <char *>boot_id, 16)
        em_store32(made.base + WATER_PID, os.getpid())
        # Another one than in the file before, so that who compares them sees that.
        em_store32(made.base + WATER_MOVES, random.getrandbits(30) << 1)
        made.slots = slots
        return made

    def install(self, path) -> None:
        """Moves the new file to its place, and sends those who sleep on the old one there."""
        text = os.fspath(path)
        old = None
        if os.path.exists(text):
            try:
                old = Watermarks.open(text)
            except (OSError, LogDamaged):
                old = None
        os.rename(text + ".new", text)
        if old is not None:
            old.retire()

    @staticmethod
    def open(path):
        """Maps the file of a directory, for writing if that is allowed."""
        text = os.fspath(path)
        try:
            mapping = Mapping.open(text)
        except OSError as error:
            if error.errno not in (1, 13, 30):
                raise
            mapping = Mapping.open(text, writable=False)
        cdef Watermarks made = _over(mapping)
        cdef int64_t size = made.mapping.size
        if size < WATER_HEADER or memcmp(made.base, <char *><bytes>MAGIC, 8) or em_load32(made.base + 8) != VERSION:
            raise LogDamaged(text, "not a file of high-watermarks of this version")
        made.slots = em_load32(made.base + WATER_SLOTS)
        if made.slots < 1 or WATER_HEADER + <int64_t>made.slots * WATER_SLOT > size:
            raise LogDamaged(text, f"{made.slots} slots do not fit in {size} bytes")
        return made

    cdef char *slot(self, int64_t number) except NULL:
        if not 0 <= number < self.slots:
            raise IndexError(number)
        return self.base + WATER_HEADER + number * WATER_SLOT

    @property
    def log_id(self) -> bytes:
        """The directory's."""
        return (self.base + WATER_LOG_ID)[:16]

    @property
    def boot_id(self) -> bytes:
        """Of the boot in which this was written: in another one its figures say nothing."""
        return (self.base + WATER_BOOT_ID)[:16]

    @property
    def replaced(self) -> bool:
        """Whether a newer file stands in this one's place."""
        return em_load32(self.base + WATER_REPLACED) != 0

    @property
    def topics(self) -> int:
        """How many topics the catalogue has."""
        return em_load32(self.base + WATER_TOPICS)

    @topics.setter
    def topics(self, int value):
        em_store32(self.base + WATER_TOPICS, value)
        self.ring()

    @property
    def word(self) -> int:
        """Goes up with each commit; see `wait_any`."""
        return em_load32(self.base + WATER_BELL + WORD)

    @property
    def moves(self) -> int:
        """Another number as soon as several topics moved together."""
        return em_load32(self.base + WATER_MOVES)

    cdef int64_t seen(self, char *slot) noexcept nogil:
        # What readers may see of a topic.
        cdef int64_t high
        cdef int32_t moves
        while True:
            moves = em_load32(self.base + WATER_MOVES)
            high = high_in(slot, moves)
            em_acquire_fence()
            if em_load32(self.base + WATER_MOVES) == moves:
                return high

    def high(self, int64_t number) -> int:
        """The first offset that can't be read yet."""
        return self.seen(self.slot(number))

    def earliest(self, int64_t number) -> int:
        """The first offset that is still kept."""
        return em_load64(self.slot(number) + SLOT_EARLIEST)

    def bounds(self, list numbers not None) -> list:
        """(earliest, high) of each of these topics, of one moment between two moves."""
        cdef int64_t number
        cdef int32_t moves
        cdef char *slot
        cdef list found
        while True:
            moves = em_load32(self.base + WATER_MOVES)
            found = []
            for number in numbers:
                slot = self.slot(number)
                found.append((em_load64(slot + SLOT_EARLIEST), high_in(slot, moves)))
            em_acquire_fence()
            # Each move stands behind a sync of the disk, so that there is time enough for a look between two of them.
            if em_load32(self.base + WATER_MOVES) == moves:
                return found

    def set_high(self, int64_t number, int64_t offset) -> None:
        """Lets readers see up to here."""
        publish(self.slot(number), offset)
        ring_all(self.base)

    def move(self, list highs not None) -> None:
        """Lets readers see several topics up to (number, offset), all at once. For the leader of commits."""
        cdef int64_t number, offset
        cdef int32_t moves = em_load32(self.base + WATER_MOVES) + 1
        cdef char *slot
        cdef list numbers = [number for number, _ in highs]
        cdef list offsets = [offset for _, offset in highs]
        for number in numbers:
            slot = self.slot(number)
            em_store64(slot + SLOT_BEFORE, em_load64(slot + SLOT_HIGH))
            em_store32(slot + SLOT_MOVE, moves)
        em_store32(self.base + WATER_MOVES, moves)
        em_fence()
        for number, offset in zip(numbers, offsets):
            show(self.slot(number), offset)
        em_store32(self.base + WATER_MOVES, moves + 1)
        em_fence()
        for number in numbers:
            ring_slot(self.slot(number))
        ring_all(self.base)

    def set_earliest(self, int64_t number, int64_t offset) -> None:
        """Before segments below it are removed."""
        em_store64(self.slot(number) + SLOT_EARLIEST, offset)
        em_fence()

    def ring(self) -> None:
        """Wakes those who wait for anything."""
        ring_all(self.base)

    def retire(self) -> None:
        """Says that this file has been replaced, and wakes everybody to see it."""
        cdef int64_t i
        em_store32(self.base + WATER_REPLACED, 1)
        em_fence()
        for i in range(self.slots):
            ring_slot(self.slot(i))
        ring_all(self.base)

    def wait(self, int64_t number, int64_t above, double timeout) -> bool:
        """Sleeps until the topic's high-watermark is over `above` (True), or the time is over or the file replaced."""
        cdef char *slot = self.slot(number)
        cdef int64_t deadline = em_now_ns() + <int64_t>(timeout * 1e9)
        while self.seen(slot) <= above:
            if self.replaced or not self.sleep(slot + SLOT_BELL, slot, above, 0, deadline):
                break
        return self.seen(slot) > above

    def wait_any(self, int32_t seen, double timeout) -> bool:
        """Sleeps until something changed since `word` was `seen`: True, or False when the time is over."""
        cdef int64_t deadline = em_now_ns() + <int64_t>(timeout * 1e9)
        cdef char *bell = self.base + WATER_BELL
        while em_load32(bell + WORD) == seen and not self.replaced:
            if not self.sleep(bell, NULL, 0, seen, deadline):
                break
        return em_load32(bell + WORD) != seen

    cdef bint sleep(self, char *bell, char *slot, int64_t above, int32_t seen, int64_t deadline) except -1:
        # One sleep; False when the time is over.
        cdef int64_t left = deadline - em_now_ns()
        cdef int32_t word
        if left <= 0:
            return False
        if left > SIGNAL_CHECK_NS:
            left = SIGNAL_CHECK_NS
        if not self.mapping.writable and left > READ_ONLY_POLL_NS:
            left = READ_ONLY_POLL_NS
        with nogil:
            word = em_load32(bell + WORD)
            if self.mapping.writable:
                em_store32(bell + SLEEPERS, 1)
            em_fence()
            if (slot == NULL and word == seen) or (slot != NULL and self.seen(slot) <= above):
                bell_sleep(bell, word, left)
        PyErr_CheckSignals()
        return True


cdef Watermarks _over(Mapping mapping):
    cdef Watermarks made = Watermarks.__new__(Watermarks)
    made.mapping = mapping
    made.base = mapping.base
    return made
