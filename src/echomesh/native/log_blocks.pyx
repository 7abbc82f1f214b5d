"""Memory for columns, kept for the next batch: fresh pages cost more than all that is written to them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

cdef enum:
    SMALLEST = 15       # as a power of two: smaller ones are malloc's own business
    CLASSES = 13        # up to 128 MiB
    KEPT_EACH = 16
    KEPT_BYTES = 128 << 20

# Only touched by who has the GIL.
cdef void *kept[CLASSES][KEPT_EACH]
cdef int kept_count[CLASSES]
cdef int64_t kept_bytes = 0


cdef int class_of(int64_t size) noexcept nogil:
    cdef int found = 0
    while (<int64_t>1 << (SMALLEST + found)) < size:
        found += 1
    return found


cdef int64_t room_of(int64_t size) noexcept nogil:
    # What is taken for so many bytes.
    return <int64_t>1 << (SMALLEST + class_of(size))


cdef void *take_memory(int64_t size, int64_t *room):
    # At least so many bytes; `room` says how many.
    global kept_bytes
    cdef int of = class_of(size)
    room[0] = <int64_t>1 << (SMALLEST + of)
    if of < CLASSES and kept_count[of]:
        kept_count[of] -= 1
        kept_bytes -= room[0]
        return kept[of][kept_count[of]]
    return malloc(room[0])


cdef void give_back(void *data, int64_t room):
    global kept_bytes
    cdef int of, other
    if data != NULL and room <= KEPT_BYTES // 2 and room >= (1 << SMALLEST):
        of = class_of(room)
        if of < CLASSES and room == <int64_t>1 << (SMALLEST + of) and kept_count[of] < KEPT_EACH:
            # What was dropped last is what is wanted next: other sizes make room for it, the largest first.
            other = CLASSES - 1
            while kept_bytes + room > KEPT_BYTES and other >= 0:
                if other != of and kept_count[other]:
                    kept_count[other] -= 1
                    kept_bytes -= <int64_t>1 << (SMALLEST + other)
                    free(kept[other][kept_count[other]])
                else:
                    other -= 1
            if kept_bytes + room <= KEPT_BYTES:
                kept[of][kept_count[of]] = data
                kept_count[of] += 1
                kept_bytes += room
                return
    free(data)


cdef int grow(void **data, int64_t *room, int64_t wanted) noexcept nogil:
    cdef int64_t size = <int64_t>1 << (SMALLEST + class_of(wanted))
    cdef void *moved = realloc(data[0], size)
    if moved == NULL:
        return -1
    data[0] = moved
    room[0] = size
    return 0


cdef int grow_column(column_t *c, int64_t more) noexcept nogil:
    return grow(<void **>&c.data, &c.room, c.used + more + SLACK)


cdef void free_column(column_t *c) noexcept nogil:
    free(c.data)
    free(c.offsets)
    free(c.valid)
    c.data = NULL
    c.offsets = NULL
    c.valid = NULL


cdef class Block:
    """Bytes that a column was built in; a buffer that nobody can write to."""

    def __dealloc__(self):
        give_back(self.data, self.room)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef Block as_block(void *data, int64_t size, int64_t room):
    cdef Block made = Block.__new__(Block)
    made.data = <uint8_t *>data
    made.size = size
    made.room = room
    return made


def kept_memory() -> int:
    """How many bytes wait to be used again."""
    return kept_bytes
