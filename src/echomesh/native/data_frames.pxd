# What the DATA of a stream between a publisher and a subscriber holds: a head of 24 bytes, then what its kind says.
#
#   HELLO     the first one: sequence is the next message's; extra the publisher's window; 16 bytes of publisher id, topic
#   MESSAGE   `prefix` bytes of prefix, then the payload
#   LARGE     a descriptor, then the prefix; the payload is in a segment of the publisher's pool
#   GAP       messages from `sequence` to `time_ns` will not come; extra says why; it needs credit as a message does
#   SEGMENT   extra is a segment of the pool that descriptors will name; RETIRED one that they will name no more
#
# and back:
#
#   CREDIT    sequence is how many messages (and gaps) were taken, time_ns how many may be sent, since the stream began;
#             8 bytes more say how many bytes were taken, as `cost` counts them: WINDOW_BYTES more than that may be sent
#   RELEASE   tokens of pool slots, 8 bytes each, that nobody looks at any more

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from echomesh.native.ring cimport Ring
from echomesh.native.ring_core cimport HEADER, ring_publish
from echomesh.native.streams cimport Outlet

cdef enum:
    HELLO = 1
    MESSAGE = 2
    LARGE = 3
    GAP = 4
    SEGMENT = 5
    RETIRED = 6
    CREDIT = 16
    RELEASE = 17
    STREAM_DATA = 2     # the kind of a stream's event
    WINDOW_BYTES = 1 << 20
    FRAME_COST = 64

ctypedef struct head_t:
    uint8_t kind
    uint8_t flags
    uint16_t prefix
    uint32_t extra
    int64_t sequence
    int64_t time_ns

ctypedef struct frame_t:
    int64_t stream_id
    head_t head

ctypedef struct descriptor_t:
    int64_t token       # segment << 32 | slot
    int64_t offset
    int64_t length


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline int64_t cost(uint8_t kind, int64_t length) noexcept nogil:
    # What a message takes in an inbox, about; of a large one there is its descriptor.
    return FRAME_COST + length if kind == MESSAGE else FRAME_COST


cdef inline frame_t frame_of(int64_t stream_id, uint8_t kind, int64_t sequence, int64_t time_ns) noexcept nogil:
    cdef frame_t frame
    frame.stream_id = stream_id
    frame.head.kind = kind
    frame.head.flags = 0
    frame.head.prefix = 0
    frame.head.extra = 0
    frame.head.sequence = sequence
    frame.head.time_ns = time_ns
    return frame


cdef inline bint put_frame(
    Outlet outlet, frame_t *frame, const char *first, int64_t first_length, const char *second, int64_t second_length
) except -1:
    # Writes a frame with two parts behind it; False when there is no room now. Nothing lets the GIL go in between, so
    # that any thread of the process may write. Whoever is to be woken is woken by `announce`.
    cdef Ring ring = outlet.ring
    cdef int64_t length = sizeof(frame_t) + first_length + second_length, index
    cdef char *body
    if outlet.holding:
        return False
    index = ring.claim_for(length, STREAM_DATA)
    if index < 0:
        return False
    body = ring.core.base + index + HEADER
    memcpy(body, frame, sizeof(frame_t))
    body += sizeof(frame_t)
    if first_length:
        memcpy(body, first, first_length)
    if second_length:
        memcpy(body + first_length, second, second_length)
    ring_publish(&ring.core, index, length)
    return True


cdef inline void announce(Outlet outlet) noexcept:
    if outlet.ring.bell is not None:
        outlet.ring.rung()
