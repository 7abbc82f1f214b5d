"""A record of a segment, little endian:

 0 u32 length   of the record with this header, without the zeros that fill it up to a multiple of 8
 4 u32 crc      CRC32C of the length's four bytes and of all bytes from 8 on
 8 u64 offset
16 i64 time_ns  when it was appended; never less than the record's before
24 u16 flags    1: the origin is there
26 u16          zero
28              origin, if any: 16 bytes log id, u64 offset there
                then the event as it was on the wire
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    HEADER = 28
    ORIGIN = 24
    HAS_ORIGIN = 1
    MAX_RECORD = (64 << 20) + 4096

cdef enum:
    RECORD_GOOD = 0
    RECORD_END = 1      # zeros, or nothing more
    RECORD_SHORT = 2    # goes on behind the end of the buffer
    RECORD_BAD = 3


cdef inline int64_t padded(int64_t size) noexcept nogil:
    return (size + 7) & ~<int64_t>7


cdef inline int64_t record_size(int64_t event_size, bint origin) noexcept nogil:
    return HEADER + event_size + (ORIGIN if origin else 0)


cdef int64_t write_record(char *at, int64_t offset, int64_t time_ns, const char *origin, const char *event,
                          int64_t event_size) noexcept nogil
cdef void renumber(char *at, int64_t offset, int64_t time_ns) noexcept nogil
cdef int check_record(const char *at, int64_t left, int64_t offset) noexcept nogil


cdef class Records:
    cdef object owner
    cdef const char *base
    cdef int64_t *starts
    cdef Py_ssize_t count
    cdef readonly int64_t first
    cdef readonly int64_t next_position
    cdef readonly int stopped

    cdef object at(self, Py_ssize_t i)
