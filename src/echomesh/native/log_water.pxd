"""The file of high-watermarks, little endian: a header of 4096 bytes, then 64 bytes for each topic's number.

header   0 magic, 8 u32 version, 12 u32 slots, 16 log id, 32 boot id, 48 u32 pid of the writer, 52 u32 replaced,
        56 u32 topics, 64 u32 futex word for all topics, 68 u32 sleepers on it, 72 u32 moves
slot     0 i64 high-watermark (the first offset that can't be read yet), 8 i64 earliest, 16 u32 futex word, 20 u32 sleepers,
        24 i64 high-watermark before a move, 32 u32 that move

Topics that one commit of stages wrote to move together. `moves` is odd meanwhile: a topic whose move is this one is still
where it was before. So nobody sees half of a commit, not even when the writer is killed in the middle, and nobody waits.
"""

from libc.stdint cimport int32_t, int64_t

from echomesh.native.mapping cimport Mapping

cdef enum:
    WATER_HEADER = 4096
    WATER_SLOT = 64
    WATER_SLOTS = 12
    WATER_LOG_ID = 16
    WATER_BOOT_ID = 32
    WATER_PID = 48
    WATER_REPLACED = 52
    WATER_TOPICS = 56
    WATER_BELL = 64
    WATER_MOVES = 72
    SLOT_HIGH = 0
    SLOT_EARLIEST = 8
    SLOT_BELL = 16
    SLOT_BEFORE = 24
    SLOT_MOVE = 32


cdef class Watermarks:
    cdef readonly Mapping mapping
    cdef char *base
    cdef readonly int slots

    cdef char *slot(self, int64_t number) except NULL
    cdef int64_t seen(self, char *slot) noexcept nogil
    cdef bint sleep(self, char *bell, char *slot, int64_t above, int32_t seen, int64_t deadline) except -1


cdef void show(char *slot, int64_t high) noexcept nogil
cdef void ring_slot(char *slot) noexcept nogil
cdef void publish(char *slot, int64_t high) noexcept nogil
cdef void ring_all(char *base) noexcept nogil
