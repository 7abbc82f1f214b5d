"""Waiting for rings: spinning, sleeping, or both."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from echomesh.errors import BusyError
from echomesh.native.atomics cimport em_fence, em_load32, em_now_ns, em_relax, em_store32, em_yield
from echomesh.native.doorbell cimport ARMED, SLEEPERS, WORD, Doorbell, bell_sleep
from echomesh.native.ring cimport Ring
from echomesh.native.ring_core cimport (
    READER_RINGS, ROOM_WANTED, WRITER_RINGS, ring_has_room, ring_readable, ring_t, trailer,
)

cdef enum:
    FOREIGN_POLL_NS = 1000000       # rings whose other side does not ring are looked at each millisecond
    SIGNAL_CHECK_NS = 10000000      # a spinning thread looks for Ctrl-C this often
    LOOKS_PER_CLOCK = 64
    # What it costs to go to sleep and be woken, measured: an answer that comes sooner is cheaper to look out for.
    SLEEP_PRICE_NS = 50000
    BRIEF_SLEEPS = 16       # so many in a row, and the next wait tries a look first
    MOST_TRUST = 8          # looks in vain, after as many that were not, until waits sleep at once again

cdef class Waiter:
    """Waits until one of some rings can be read, or one of some full ones can be written.

    The bell is this process's own: those who write to the rings, and those who make room, must ring it. Without a bell, and
    for rings whose other side does not ring, it looks each millisecond.
    """

    def __cinit__(self, Doorbell bell=None):
        self.bell = bell
        self.rings = []
        self.full = []
        if bell is not None:
            self.seen = em_load32(bell.base + WORD)

    def __dealloc__(self):
        free(self.readers)
        free(self.rooms)

    def watch(self, rings, full=()) -> None:
        """Waits from now on for these `rings` to be readable, or for room in `full`, pairs of a ring and a length."""
        cdef Ring ring
        cdef int i
        # Both lists are whole before anything is given up: what the readers point at lives in the old ones.
        new_rings, new_full = list(rings), list(full)
        if self.waiting:
            raise BusyError("this waiter is in use by another thread")
        self.rings = new_rings
        self.full = new_full
        free(self.readers)
        free(self.rooms)
        self.reader_count = self.room_count = self.last = 0
        self.readers = <ring_t **>malloc((len(self.rings) + 1) * sizeof(ring_t *))
        self.rooms = <room_t *>malloc((len(self.full) + 1) * sizeof(room_t))
        if self.readers == NULL or self.rooms == NULL:
            raise MemoryError
        for i, ring in enumerate(self.rings):
            self.readers[i] = &ring.core
        self.reader_count = len(self.rings)
        for i, (room, length) in enumerate(self.full):
            ring = room
            ring.check_writable()
            self.rooms[i].ring = &ring.core
            self.rooms[i].length = length
        self.room_count = len(self.full)

    cdef int find(self) noexcept nogil:
        # The number of a ring that can be read, or, behind those, of one with room; -1 when there is none. Each look
        # begins behind the last find, so that a busy ring can't starve the others.
        cdef int i, at = self.last
        for i in range(self.reader_count):
            at = at + 1 if at + 1 < self.reader_count else 0
            if ring_readable(self.readers[at]):
                self.last = at
                return at
        for i in range(self.room_count):
            if ring_has_room(self.rooms[i].ring, self.rooms[i].length):
                return self.reader_count + i
        return -1

    cdef bint look(self) noexcept nogil:
        return self.find() >= 0

    cdef bint foreign(self) noexcept nogil:
        cdef int i
        for i in range(self.reader_count):
            if not em_load32(trailer(self.readers[i], WRITER_RINGS)):
                return True
        for i in range(self.room_count):
            if not em_load32(trailer(self.rooms[i].ring, READER_RINGS)):
                return True
        return False

    cdef void want_room(self) noexcept nogil:
        cdef int i
        for i in range(self.room_count):
            em_store32(trailer(self.rooms[i].ring, ROOM_WANTED), 1)

    cdef bint rung(self) noexcept nogil:
        # Whether the bell rang since the last wait; a ring that came before the sleep must not be slept over.
        cdef int32_t word
        if self.bell is None:
            return False
        word = em_load32(self.bell.base + WORD)
        if word == self.seen:
            return False
        self.seen = word
        return True

    cdef int spin(self, int64_t until) noexcept nogil:
        # 1: something is there; 0: the time is over; -1: time to look for signals.
        cdef int64_t now = em_now_ns(), check = now + SIGNAL_CHECK_NS
        cdef int i
        while True:
            for i in range(LOOKS_PER_CLOCK):
                if self.look():
                    return 1
                em_relax()
            if self.rung():
                return 1
            em_yield()      # the one we wait for may have been put on this very core
            now = em_now_ns()
            if until >= 0 and now >= until:
                return 0
            if now >= check:
                return -1

    cdef int look_or_sleep(self, int64_t deadline) noexcept nogil:
        # As `sleep`. While answers come sooner than a sleep costs, it looks out for as long as that first: two that talk
        # to each other then need neither sleep nor wake-up, and one whose work comes at other times loses nothing.
        cdef int64_t start = em_now_ns(), until = start + SLEEP_PRICE_NS
        cdef int found
        if self.trust > 0:
            found = self.spin(deadline if 0 <= deadline < until else until)
            if found != 0:
                self.trust = min(self.trust + 1, MOST_TRUST)
                return found
            self.trust -= 1
        found = self.sleep(deadline)
        self.brief = self.brief + 1 if found > 0 and em_now_ns() - start < 2 * SLEEP_PRICE_NS else 0
        if self.brief == BRIEF_SLEEPS:
            self.brief = 0
            self.trust = 1
        return found

    cdef int sleep(self, int64_t deadline) noexcept nogil:
        # 1: something is there, or the bell rang; 0: the time is over; -1: a signal came, or it is time to look again.
        cdef int64_t limit = -1
        cdef bint foreign = self.bell is None or self.foreign()
        cdef int32_t local = 0
        if deadline >= 0:
            limit = deadline - em_now_ns()
            if limit <= 0:
                return 0
        if foreign and (limit < 0 or limit > FOREIGN_POLL_NS):
            limit = FOREIGN_POLL_NS
        if self.bell is None:
            bell_sleep(<char *>&local, 0, limit)
            return 1 if self.look() else -1
        self.want_room()
        # The mark is left to the next ring: other threads may sleep on this bell too.
        em_store32(self.bell.base + SLEEPERS, 1)
        em_fence()
        if self.look():
            return 1
        bell_sleep(self.bell.base, self.seen, limit)
        if self.rung() or self.look():
            return 1
        return -1

    cdef int await_any(self, double timeout, double spin) except -2:
        # 1: something is there, or the bell rang; 0: the time is over. Negative times are endless.
        cdef int64_t start, deadline = -1, spin_until = 0
        cdef int found
        if self.rung():
            return 1
        if self.waiting:
            raise BusyError("this waiter is in use by another thread")
        start = em_now_ns()
        if timeout >= 0:
            deadline = start + <int64_t>(min(timeout, 1e9) * 1e9)
        spin_until = -1 if spin > 1e9 else start + <int64_t>(spin * 1e9)
        self.waiting = True
        try:
            while True:
                with nogil:
                    found = 0
                    if spin_until < 0 or em_now_ns() < spin_until:
                        found = self.spin(deadline if spin_until < 0 or 0 <= deadline < spin_until else spin_until)
                    if found == 0 and spin_until >= 0:
                        found = self.look_or_sleep(deadline)
                if found > 0:
                    return 1
                PyErr_CheckSignals()
                if deadline >= 0 and em_now_ns() >= deadline:
                    return 0
        finally:
            self.waiting = False

    def wait(self, timeout=None, *, double spin=0.0) -> bool:
        """Waits up to `timeout` seconds, spinning for the first `spin` of them (`inf`: all), then asleep.

        Asleep it takes no processor time. Only while what it waits for keeps coming within 50 microseconds, less than a
        sleep and a wake-up cost, it looks out for so long before it sleeps.
        True when there is something to do, or the bell was rung; False when the time is over. The GIL is released, and
        signals are handled: Ctrl-C ends it.
        """
        return self.look() or self.await_any(-1.0 if timeout is None else max(0.0, timeout), spin) == 1

    cpdef int next(self, double timeout, double spin) except -2:
        """As `wait`, and tells which: the number of a ring to read, or behind those of one with room; -1 for neither."""
        cdef int found = self.find()
        if found < 0:
            self.await_any(timeout, spin)
            found = self.find()
        return found

    def arm(self) -> bool:
        """For an event loop: True when there is something to do now; else the bell's `fileno` gets readable once there is."""
        if self.bell is None:
            return self.look()
        self.want_room()
        em_store32(self.bell.base + ARMED, 1)
        em_fence()
        if self.look() or self.rung():
            em_store32(self.bell.base + ARMED, 0)
            return True
        return False

    @property
    def polls(self) -> bool:
        """Whether some ring's other side does not ring, so that it must be looked at each millisecond."""
        return self.bell is None or self.foreign()
