from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

ctypedef struct seen_t:
    uint64_t hash[2]
    int64_t offset, time_ns


cdef class WindowBudget:
    cdef readonly int64_t limit, used
    cdef readonly int64_t shrunk        # events that were forgotten early, for want of memory


cdef class Window:
    cdef WindowBudget budget
    cdef int64_t events, age_ns
    cdef uint8_t key[16]
    cdef seen_t *ring
    cdef uint32_t *table        # slot to place in the ring plus one, 0 for none
    cdef int64_t room           # of the ring, a power of two; the table has twice as many slots
    cdef int64_t first, last    # the ring holds [first, last), counted from the beginning of time
    cdef uint64_t hash[2]
    cdef bint mixed             # whether offsets are not in order, since staged rows came between
    cdef readonly bint shrunk   # whether the window had to be smaller than it should

    cdef int64_t slot_of(self, uint64_t *hash) noexcept nogil
    cdef void remove(self, int64_t place) noexcept nogil
    cdef void forget(self, int64_t now) noexcept nogil
    cdef bint grow(self) noexcept nogil
    cdef void sift(self, int64_t offset) noexcept nogil
    cdef int64_t look(self, const uint8_t *event, int64_t size, int64_t now) noexcept nogil
    cdef void keep(self, int64_t offset, int64_t now) noexcept nogil
