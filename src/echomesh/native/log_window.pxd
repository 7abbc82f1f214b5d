from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from echomesh.native.log_sums cimport em_source

ctypedef struct seen_t:
    uint64_t hash[2]
    int64_t offset, time_ns


cdef class WindowBudget:
    cdef readonly int64_t limit, used
    cdef readonly int64_t shrunk        # events that were forgotten early, for want of memory


cdef class Window:
    cdef WindowBudget budget
    # What every append looks at stands close together: with thousands of topics each line comes from afar.
    cdef int64_t events, age_ns
    cdef seen_t *ring
    cdef uint32_t *table        # from hashes to places in the ring; see `slot_of`
    cdef int64_t room           # of the ring, a power of two; the table has twice as many slots
    cdef int64_t first, last    # the ring holds [first, last), counted from the beginning of time
    cdef int64_t oldest_ns      # the time of `first`
    cdef int64_t last_offset    # the offset of the one before `last`
    cdef uint8_t key[16]
    cdef em_source source
    cdef uint64_t hash[2]       # of the event that `find` was asked for
    cdef bint mixed             # whether offsets are not in order, since staged rows came between
    cdef readonly bint shrunk   # whether the window had to be smaller than it should

    cdef void expect(self, const uint64_t *hash) noexcept nogil
    cdef int64_t look(self, const uint64_t *hash, int64_t now) noexcept nogil
    cdef void keep(self, const uint64_t *hash, int64_t offset, int64_t now) noexcept nogil
    cdef void take(self, const uint8_t *event, int64_t size, int64_t offset, int64_t now) noexcept nogil
    cdef int64_t slot_of(self, const uint64_t *hash) noexcept nogil
    cdef void fill(self, int64_t slot, const uint64_t *hash, int64_t place) noexcept nogil
    cdef void remove(self, int64_t place) noexcept nogil
    cdef void forget(self, int64_t now) noexcept nogil
    cdef void remove_first(self) noexcept nogil
    cdef bint grow(self) noexcept nogil
    cdef void enter_all(self) noexcept nogil
    cdef void sift(self, int64_t offset) noexcept nogil
