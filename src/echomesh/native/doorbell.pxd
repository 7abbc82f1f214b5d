from libc.stdint cimport int32_t, int64_t

from echomesh.native.mapping cimport Mapping

cdef enum:
    WORD = 0        # the futex: goes up by one with each wake
    SLEEPERS = 4    # threads that went to sleep on the word since it last moved
    ARMED = 8       # 1 while an event loop waits for the FIFO
    BELL_BYTES = 64


# A futex word with the mark of its sleepers; a broadcast buffer has one in its trailer too. Who wants to sleep reads the
# word, sets the mark, has a fence, and looks again; then it sleeps on the word that it read.
cdef void bell_wake(char *base) noexcept nogil
cdef int bell_sleep(char *base, int32_t seen, int64_t timeout_ns) noexcept nogil


cdef class Doorbell:
    cdef Mapping mapping
    cdef char *base
    cdef int fifo
    cdef readonly str path
    cdef readonly bint own

    cdef void notify(self) noexcept nogil
    cdef void wake_all(self) noexcept nogil
