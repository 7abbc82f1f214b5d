"""Waiting for messages or for room: whoever waits reads the rings of its process, in its own thread."""

import threading

from cpython.pythread cimport (
    NOWAIT_LOCK, WAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_get_thread_ident,
    PyThread_release_lock,
)

from echomesh.native.atomics cimport em_now_ns

cdef extern from "pythread.h" nogil:
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible)

cdef enum:
    MOMENT_US = 2000

cdef double TICK_S = 0.25
cdef double QUEUE_TICK_S = 0.002    # while something found no room


cdef class Turn:
    """A lock, for `with`."""

    def __cinit__(self):
        self.held = PyThread_allocate_lock()
        if self.held == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.held != NULL:
            PyThread_free_lock(self.held)

    cdef bint taken_at_once(self) noexcept:
        return PyThread_acquire_lock(self.held, NOWAIT_LOCK)

    cdef void give(self) noexcept:
        PyThread_release_lock(self.held)

    cdef void await_free(self) noexcept:
        # For a moment at most; without the GIL, which the one who has it may need to get done.
        with nogil:
            if PyThread_acquire_lock_timed(self.held, MOMENT_US, 0):
                PyThread_release_lock(self.held)

    def __enter__(self):
        if not self.taken_at_once():
            with nogil:
                PyThread_acquire_lock(self.held, WAIT_LOCK)

    def __exit__(self, kind, error, trace):
        self.give()


cdef class Place:
    # Where one thread waits.

    def __cinit__(self, bell):
        self.waiter = Waiter(bell)
        self.generation = -1


cdef class Asked(Awaited):
    # What a function of the user's tells.

    def __cinit__(self, question):
        self.question = question

    cdef bint came(self) except -1:
        return self.question()


cdef class Reading:
    """The rings of a process, and the threads that wait for them.

    A derived class says what `work` there is beside reading, how those who lag `resume`, how to `wake` others, and raises
    in `check` what keeps this process from all that. `watching` has what its event loops wait for.
    """

    def __init__(self, nukleus, Home home not None):
        self.nukleus = nukleus
        self.home = home
        self.intake = nukleus.intake
        self.lock = Turn()
        self.watching = {}
        self.places = threading.local()

    cdef Place place_of_thread(self):
        cdef unsigned long thread = PyThread_get_thread_ident()
        if self.last is None or self.last_thread != thread:
            made = getattr(self.places, "place", None)
            if made is None:
                made = self.places.place = Place(self.nukleus.bell)
            self.last = made
            self.last_thread = thread
        return self.last

    def rings_known(self) -> int:
        """A number that changes with the rings that are to be waited for; under the lock."""
        if self.intake.changed:
            self.intake.changed = False
            self.generation += 1
        return self.generation

    cdef int rewatch(self, Place place) except -1:
        with self.lock:
            place.generation = self.rings_known()
            rings = self.nukleus.rings()
        place.commands = len(rings) - 1
        place.waiter.watch(rings)
        return 0

    cdef bint read_now(self, int mine) except -1:
        # Without waiting; False when another thread reads. `mine` is 1 for a thread that counts as a sleeper.
        cdef int64_t done
        if not self.lock.taken_at_once():
            return False
        self.home.activity += 1
        try:
            done = self.intake.read_ready()
        finally:
            self.lock.give()
        self.after(done, mine)
        return True

    cdef int after(self, int64_t done, int mine) except -1:
        # What was read may be for others than the thread that read it.
        if self.home.owing or self.credited != self.home.credited:
            self.credited = self.home.credited
            if self.home.owing or self.home.lagging:
                self.resume()
        if done and (self.watching or self.sleepers > mine):
            self.wake()
        return 0

    def read(self) -> bool:
        """Reads what has come, in the caller's thread; False when another thread does."""
        return self.read_now(0)

    def settle(self, int64_t done) -> None:
        """Something was read: whom it may concern is told."""
        self.after(done, 0)

    cdef bint wait_for(self, Awaited what, object timeout, double spin) except -1:
        cdef Place place = self.place_of_thread()
        cdef int64_t deadline = -1
        cdef double left
        cdef bint read
        if timeout is not None:
            deadline = em_now_ns() + <int64_t>(min(max(0.0, <double>timeout), 1e9) * 1e9)
        self.sleepers += 1
        try:
            while True:
                if not self.home.alive:
                    self.check()
                read = self.read_now(1)
                if what.came():
                    return True
                left = TICK_S
                if deadline >= 0:
                    left = min(left, (deadline - em_now_ns()) * 1e-9)
                    if left <= 0:
                        return False
                if not read:
                    self.lock.await_free()
                    continue
                if self.home.owing:
                    left = min(left, QUEUE_TICK_S)
                if place.generation != self.generation or self.intake.changed:
                    self.rewatch(place)
                if place.waiter.next(left, spin) == place.commands:
                    self.work()
        finally:
            self.sleepers -= 1

    def wait(self, ready, timeout=None, double spin=0.0) -> bool:
        """Waits until something is so, reading meanwhile; False when it takes longer than `timeout` seconds."""
        return self.wait_for(Asked(ready), timeout, spin)

    def check(self) -> None:
        """Whether this process may use it."""

    def work(self) -> None:
        """All that there is to do now."""

    def resume(self) -> None:
        """Writes what waits in queues."""

    def wake(self) -> None:
        """Has all who wait look again."""
