"""Doorbells: how one process wakes another."""

import contextlib
import os

cimport cython
from posix.unistd cimport close, read, write

from echomesh.errors import StorageError
from echomesh.native.atomics cimport (
    em_add32, em_fence, em_futex_wait, em_futex_wake_all, em_load32, em_store32, em_swap32,
)
from echomesh.native.mapping import translated


cdef void bell_wake(char *base) noexcept nogil:
    # The first to ring takes the mark: a woken thread may wait long for a processor, and no other ring need call the kernel
    # meanwhile. The mark goes before the word moves, so that whoever loses its mark here finds that its word has moved.
    cdef bint asleep = em_swap32(base + SLEEPERS, 0) != 0
    em_add32(base + WORD, 1)
    if asleep:
        em_futex_wake_all(base + WORD)


cdef int bell_sleep(char *base, int32_t seen, int64_t timeout_ns) noexcept nogil:
    return em_futex_wait(base + WORD, seen, timeout_ns)


# Without a clear by the garbage collector: a ring that dies in the same cycle may still notify.
@cython.no_gc_clear
cdef class Doorbell:
    """A process's bell: whoever gives it work rings, and pays for that only while it sleeps.

    It is a small mapped file with a futex word, for threads, and a FIFO beside it, for event loops.
    """

    def __cinit__(self):
        self.fifo = -1

    def __dealloc__(self):
        if self.fifo >= 0:
            close(self.fifo)

    @staticmethod
    def create(path):
        """Makes this process's own bell, in place of one that may be there."""
        cdef Doorbell bell = Doorbell.__new__(Doorbell)
        bell.path = os.fspath(path)
        bell.own = True
        fifo = bell.path + ".fifo"
        try:
            for old in (bell.path, fifo):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(old)
            # The FIFO is open before the file is there: who finds the file can open the FIFO.
            os.mkfifo(fifo, 0o600)
            bell.fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise translated(error.errno, fifo) from None
        try:
            bell.mapping = Mapping.create(bell.path, BELL_BYTES)
        except BaseException:
            os.unlink(fifo)
            raise
        bell.base = bell.mapping.base
        return bell

    @staticmethod
    def open(path):
        """The bell of another process."""
        cdef Doorbell bell = Doorbell.__new__(Doorbell)
        bell.path = os.fspath(path)
        bell.mapping = Mapping.open(bell.path)
        if bell.mapping.size < BELL_BYTES:
            raise StorageError(22, "not a doorbell", bell.path)
        bell.base = bell.mapping.base
        with contextlib.suppress(OSError):      # no event loop there, or its process is gone: the futex remains
            bell.fifo = os.open(bell.path + ".fifo", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        return bell

    cdef void notify(self) noexcept nogil:
        # The fence orders what was published before the look at who sleeps; the sleeper does the same the other way
        # round, so that one of the two always sees the other.
        em_fence()
        if em_load32(self.base + SLEEPERS) or em_load32(self.base + ARMED):
            self.wake_all()

    cdef void wake_all(self) noexcept nogil:
        cdef char byte = 1
        bell_wake(self.base)
        if em_swap32(self.base + ARMED, 0) and self.fifo >= 0:
            write(self.fifo, &byte, 1)

    def ring(self) -> None:
        """Wakes the bell's process, at once or when it next wants to sleep."""
        with nogil:
            self.wake_all()

    def fileno(self) -> int:
        """For an event loop: readable once somebody rang an armed bell."""
        return self.fifo

    def silence(self) -> None:
        """Takes note of the rings so far: the FIFO is empty, the bell no longer armed."""
        cdef char buffer[64]
        em_store32(self.base + ARMED, 0)
        while read(self.fifo, buffer, 64) == 64:
            pass

    def __repr__(self):
        return f"Doorbell({self.path!r})"
