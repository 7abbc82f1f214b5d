"""Numbers as they stand in frames and in MessagePack: the highest byte first."""

from libc.stdint cimport uint8_t, uint64_t


cdef inline uint64_t big_endian(const uint8_t *p, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | p[i]
    return value


cdef inline void put_big_endian(uint8_t *p, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        p[i] = <uint8_t>(value >> (8 * (size - 1 - i)))
