# The many-to-one ring as plain functions on memory, byte-compatible with Agrona: no Python object is touched, so that
# the GIL can be released around them and other compiled modules can use them.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from echomesh.native.atomics cimport (
    em_add64, em_cas64, em_load32, em_load64, em_release_fence, em_store32, em_store64,
)

cdef enum:
    HEADER = 8
    PADDING = -1
    TRAILER = 768
    # Trailer, from the capacity on. The first cache line is unused by the format: our marks stand there.
    WRITER_RINGS = 0        # our writer rings the reader's doorbell
    READER_RINGS = 4        # our reader rings the doorbell of a writer that waits for room
    ROOM_WANTED = 8         # a writer waits for room
    TAIL = 128
    INTENT = 136            # in the writers' own cache line: what a writer is about to claim, three int64
    HEAD_CACHE = 256
    HEAD = 384
    CORRELATION = 512
    HEARTBEAT = 640
    # Results of a claim that are no index.
    FULL = -1
    DAMAGED = -2

ctypedef struct ring_t:
    char *base
    int64_t capacity
    int64_t mask
    char *intent            # NULL, or three int64 of writers that take turns: position, bytes, state

# States of an intent. They tell what a writer had done when it was killed. CLAIMING: the place may be taken, and nothing
# is published there. PUBLISHING: a negative length is there, or, once published, whatever the reader made of it.
cdef enum:
    IDLE = 0
    CLAIMING = 1
    PUBLISHING = 2


cdef inline int64_t align8(int64_t n) noexcept nogil:
    return (n + 7) & ~<int64_t>7


cdef inline char *trailer(ring_t *ring, int64_t offset) noexcept nogil:
    return ring.base + ring.capacity + offset


cdef inline int64_t header(int64_t length, int32_t kind) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>kind << 32) | <uint32_t>length)


cdef inline int64_t ring_room(ring_t *ring, int64_t need, int64_t tail, int64_t *head, int64_t *padding) noexcept nogil:
    # 0 when `need` bytes fit behind `tail` (with `padding` before them), else FULL or DAMAGED. `head` comes in as the
    # cached one and is read anew, and cached, only when the cached one does not do.
    cdef int64_t used = tail - head[0]
    cdef int64_t to_end
    if used < 0 or need > ring.capacity - used:
        head[0] = em_load64(trailer(ring, HEAD))
        used = tail - head[0]
        if used < 0 or used > ring.capacity:
            # Either the tail moved on since it was read, or the values are impossible.
            return DAMAGED if em_load64(trailer(ring, TAIL)) == tail else 0
        if need > ring.capacity - used:
            return FULL
        em_store64(trailer(ring, HEAD_CACHE), head[0])
    padding[0] = 0
    to_end = ring.capacity - (tail & ring.mask)
    if need > to_end:
        if need > (head[0] & ring.mask):
            head[0] = em_load64(trailer(ring, HEAD))
            if need > (head[0] & ring.mask):
                return FULL
            em_store64(trailer(ring, HEAD_CACHE), head[0])
        padding[0] = to_end
    return 0


cdef inline void ring_intend(ring_t *ring, int64_t position, int64_t count) noexcept nogil:
    em_store64(ring.intent, position)
    em_store64(ring.intent + 8, count)
    em_store64(ring.intent + 16, CLAIMING)


cdef inline void ring_begin(ring_t *ring, int64_t index, int32_t kind, int64_t length) noexcept nogil:
    em_store64(ring.base + index, header(-(length + HEADER), kind))
    em_release_fence()


cdef inline void ring_publish(ring_t *ring, int64_t index, int64_t length) noexcept nogil:
    if ring.intent != NULL:
        em_store64(ring.intent + 16, PUBLISHING)
    em_store32(ring.base + index, <int32_t>(length + HEADER))
    if ring.intent != NULL:
        em_store64(ring.intent + 16, IDLE)


cdef inline int64_t ring_claim(ring_t *ring, int64_t length) noexcept nogil:
    # The index of a record for a body of `length` bytes, taken from all other writers, or FULL or DAMAGED.
    cdef int64_t need = align8(length + HEADER)
    cdef int64_t head = em_load64(trailer(ring, HEAD_CACHE))
    cdef int64_t tail, verdict, padding = 0, index
    while True:
        tail = em_load64(trailer(ring, TAIL))
        if tail & 7 or tail < 0:
            return DAMAGED
        verdict = ring_room(ring, need, tail, &head, &padding)
        if verdict:
            if ring.intent != NULL:
                em_store64(ring.intent + 16, IDLE)      # a claim that was lost to a foreign writer is over
            return verdict
        index = tail & ring.mask
        if ring.intent != NULL:
            # The padding is a claim of its own: two places under one intent could not be told apart from consumed ones.
            ring_intend(ring, tail, padding if padding else need)
            if not em_cas64(trailer(ring, TAIL), tail, tail + (padding if padding else need)):
                continue
            if not padding:
                return index
            ring_begin(ring, index, PADDING, padding - HEADER)
            ring_publish(ring, index, padding - HEADER)
        elif em_cas64(trailer(ring, TAIL), tail, tail + need + padding):
            break
    if padding:
        em_store64(ring.base + index, header(padding, PADDING))
        index = 0
    return index


cdef inline void ring_abort(ring_t *ring, int64_t index, int64_t length) noexcept nogil:
    em_store32(ring.base + index + 4, PADDING)
    ring_publish(ring, index, length)


cdef inline bint ring_readable(ring_t *ring) noexcept nogil:
    return em_load32(ring.base + (em_load64(trailer(ring, HEAD)) & ring.mask & ~<int64_t>7)) > 0


cdef inline bint ring_has_room(ring_t *ring, int64_t length) noexcept nogil:
    cdef int64_t head = em_load64(trailer(ring, HEAD_CACHE))
    cdef int64_t padding = 0
    return ring_room(ring, align8(length + HEADER), em_load64(trailer(ring, TAIL)), &head, &padding) != FULL


cdef inline int64_t ring_record(ring_t *ring, int64_t index) noexcept nogil:
    # The length of the published record at `index`; 0 when there is none; DAMAGED when it can't be one. The tail is not
    # looked at: its cache line is the writers', and taking it from them for each record halves the throughput.
    cdef int64_t length = em_load32(ring.base + index)
    if length <= 0:
        return 0
    if length < HEADER or index + align8(length) > ring.capacity:
        return DAMAGED
    return length


cdef inline void ring_consume(ring_t *ring, int64_t head, int64_t count) noexcept nogil:
    # The reader's last step: `count` bytes from `head` on are zeroed and given back.
    memset(ring.base + (head & ring.mask), 0, count)
    em_store64(trailer(ring, HEAD), head + count)


cdef inline void ring_pad(ring_t *ring, int64_t index, int64_t length) noexcept nogil:
    em_store32(ring.base + index + 4, PADDING)
    em_store32(ring.base + index, <int32_t>length)


cdef inline bint ring_unblock(ring_t *ring, bint to_tail) noexcept nogil:
    # Pads the unpublished record at head. With nothing published behind it that is left alone, unless `to_tail`.
    cdef int64_t head = em_load64(trailer(ring, HEAD))
    cdef int64_t tail = em_load64(trailer(ring, TAIL))
    cdef int64_t index = head & ring.mask
    cdef int64_t limit = tail & ring.mask
    cdef int64_t length, at
    cdef bint wrapped
    if head < 0 or tail <= head or head & 7 or tail & 7 or tail - head > ring.capacity:
        return False
    length = em_load32(ring.base + index)
    if length > 0:
        return False
    if length < 0:
        if -length < HEADER or index + align8(-length) > ring.capacity:
            return False
        ring_pad(ring, index, -length)
        return True
    wrapped = limit <= index
    if wrapped:
        limit = ring.capacity
    at = index + 8
    while at < limit and em_load32(ring.base + at) == 0:
        at += 8
    if at >= limit and not wrapped and not to_tail:
        return False
    ring_pad(ring, index, at - index)
    return True


cdef inline bint ring_heal(ring_t *ring) noexcept nogil:
    # Pads what a writer claimed and did not publish before it died; its intent tells where. The caller holds the lock.
    cdef int64_t state = em_load64(ring.intent + 16)
    cdef int64_t position = em_load64(ring.intent)
    cdef int64_t count = em_load64(ring.intent + 8)
    cdef int64_t index = position & ring.mask
    cdef int64_t tail = em_load64(trailer(ring, TAIL))
    cdef int32_t length
    cdef bint healed = False
    if state != IDLE and not (position | count) & 7 and HEADER <= count <= ring.capacity - index \
            and position >= em_load64(trailer(ring, HEAD)) and 0 <= tail - position - count <= ring.capacity:
        length = em_load32(ring.base + index)
        if length < 0 or (length == 0 and state == CLAIMING):
            ring_pad(ring, index, count)
            healed = True
    em_store64(ring.intent + 16, IDLE)
    return healed
