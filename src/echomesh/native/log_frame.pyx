"""Frames of the journal: filled by appends, sealed for one write, and read back."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.log_record cimport padded, record_size, write_record
from echomesh.native.log_sums cimport em_crc32c, em_crc_setup

em_crc_setup()

RECORDS, APART, NOTE = KIND_RECORDS, KIND_APART, KIND_NOTE
FRAME_HEADER_BYTES, ENTRY_HEADER_BYTES, SECTOR_BYTES = FRAME_HEADER, ENTRY_HEADER, SECTOR


cdef frame_t *frame_new() noexcept nogil:
    cdef frame_t *f = <frame_t *>calloc(1, sizeof(frame_t))
    if f != NULL:
        f.size = FRAME_HEADER
    return f


cdef void frame_clear(frame_t *f) noexcept nogil:
    cdef int64_t i
    if f.apart_bytes:
        for i in range(f.write_count):
            free(f.writes[i].apart)
    f.write_count = 0
    f.size = FRAME_HEADER
    f.apart_bytes = f.count = f.ahead = 0
    f.stuck = f.dropped = False
    f.next = f.before = NULL


cdef void frame_free(frame_t *f) noexcept nogil:
    if f != NULL:
        frame_clear(f)
        free(f.data)
        free(f.writes)
        free(f)


cdef int reserve(frame_t *f, int64_t more) noexcept nogil:
    # Room for so many bytes, the zeros behind the last one, and one more write.
    cdef int64_t wanted = f.size + more + SECTOR, room = f.room
    cdef void *moved
    if wanted > room:
        # Small at first: thousands of them with one record each are kept in memory.
        room = room * 2 if room else 1024
        while room < wanted:
            room *= 2
        moved = realloc(f.data, room)
        if moved == NULL:
            return -1
        f.data = <char *>moved
        f.room = room
    if f.write_count == f.write_room:
        room = f.write_room * 4 if f.write_room else 4
        moved = realloc(f.writes, room * sizeof(write_t))
        if moved == NULL:
            return -1
        f.writes = <write_t *>moved
        f.write_room = room
    return 0


cdef void entry(frame_t *f, uint32_t kind, uint32_t topic, int64_t base, int64_t position, uint32_t size,
                int64_t end) noexcept nogil:
    cdef char *at = f.data + f.size
    cdef uint32_t short_position = <uint32_t>position
    memcpy(at, &kind, 4)
    memcpy(at + 4, &topic, 4)
    memcpy(at + 8, &base, 8)
    memcpy(at + 16, &short_position, 4)
    memcpy(at + 20, &size, 4)
    memcpy(at + 24, &end, 8)
    f.size += ENTRY_HEADER


cdef write_t *new_write(frame_t *f, topic_t *t) noexcept nogil:
    cdef write_t *w = &f.writes[f.write_count]
    f.write_count += 1
    w.topic = t
    w.fd = t.fd
    w.apart = NULL
    w.base = t.base
    w.turn = t.turn
    w.position = t.position
    w.start = f.size
    w.length = 0
    return w


cdef int frame_record(frame_t *f, topic_t *t, int64_t time_ns, const char *origin, const char *event,
                      int64_t event_size, int64_t apart_over) noexcept nogil:
    # Takes the topic's next offset and place for an event; the caller has made sure that the segment has room.
    cdef int64_t size = padded(record_size(event_size, origin != NULL))
    cdef write_t *w
    cdef uint32_t total
    if event_size > apart_over:
        return record_apart(f, t, time_ns, origin, event, event_size)
    if reserve(f, size + ENTRY_HEADER) < 0:
        return -1
    w = &f.writes[f.write_count - 1] if f.write_count else NULL
    # One without bytes is a mark: there is no entry before it.
    if (w == NULL or w.topic != t or w.base != t.base or w.apart != NULL or w.length == 0
            or w.start + w.length != f.size):
        entry(f, KIND_RECORDS, t.number, t.base, t.position, 0, 0)
        w = new_write(f, t)
    write_record(f.data + f.size, t.next_offset, time_ns, origin, event, event_size)
    f.size += size
    w.length += size
    total = <uint32_t>w.length
    take(f, t, w, size, time_ns)
    memcpy(f.data + w.start - ENTRY_HEADER + 20, &total, 4)
    memcpy(f.data + w.start - ENTRY_HEADER + 24, &w.end_offset, 8)
    return 0


cdef void take(frame_t *f, topic_t *t, write_t *w, int64_t size, int64_t time_ns) noexcept nogil:
    f.count += 1
    t.position += size
    t.next_offset += 1
    t.last_time = time_ns
    w.end_offset = t.next_offset
    w.end_time = time_ns


cdef int record_apart(frame_t *f, topic_t *t, int64_t time_ns, const char *origin, const char *event,
                      int64_t event_size) noexcept nogil:
    cdef int64_t size = padded(record_size(event_size, origin != NULL))
    cdef write_t *w
    cdef char *made = <char *>malloc(size)
    if made == NULL or reserve(f, ENTRY_HEADER + 8) < 0:
        free(made)
        return -1
    write_record(made, t.next_offset, time_ns, origin, event, event_size)
    entry(f, KIND_APART, t.number, t.base, t.position, 8, t.next_offset + 1)
    memcpy(f.data + f.size, made, 8)
    w = new_write(f, t)
    f.size += 8
    w.apart = made
    w.length = size
    f.apart_bytes += size
    take(f, t, w, size, time_ns)
    return 0


cdef int frame_note(frame_t *f, const char *note, int64_t size) noexcept nogil:
    if reserve(f, ENTRY_HEADER + padded(size)) < 0:
        return -1
    entry(f, KIND_NOTE, 0, 0, 0, <uint32_t>size, 0)
    memcpy(f.data + f.size, note, size)
    memset(f.data + f.size + size, 0, padded(size) - size)
    f.size += padded(size)
    return 0


cdef int frame_mark(frame_t *f, topic_t *t) noexcept nogil:
    # The topic ends where it says once this frame is committed, though the frame has no bytes for it.
    cdef write_t *w
    if reserve(f, 0) < 0:
        return -1
    w = new_write(f, t)
    w.end_offset = t.next_offset
    w.end_time = t.last_time
    return 0


cdef int64_t frame_seal(frame_t *f, int64_t sequence, const char *log_id) noexcept nogil:
    # Stamps the frame for one journal file; the bytes to write.
    cdef uint32_t length = <uint32_t>f.size, crc
    cdef int64_t whole = (f.size + SECTOR - 1) & ~<int64_t>(SECTOR - 1)
    memcpy(f.data, &length, 4)
    memcpy(f.data + 8, &sequence, 8)
    memcpy(f.data + 16, &f.number, 8)
    memcpy(f.data + 24, log_id, 8)
    memset(f.data + f.size, 0, whole - f.size)
    crc = em_crc32c(em_crc32c(0, f.data, 4), f.data + 8, length - 8)
    memcpy(f.data + 4, &crc, 4)
    return whole


def read_frame(const uint8_t[::1] buffer, int64_t position, const uint8_t[::1] log_id):
    """(sequence, number, length) of the true frame at `position`, or None when there is none."""
    cdef int64_t size = buffer.shape[0]
    cdef uint32_t length, crc, found
    cdef int64_t sequence, number
    cdef const uint8_t *at
    if position < 0 or position + FRAME_HEADER > size or log_id.shape[0] < 8:
        return None
    at = &buffer[0] + position
    memcpy(&length, at, 4)
    memcpy(&crc, at + 4, 4)
    if length < FRAME_HEADER or position + length > size or memcmp(at + 24, &log_id[0], 8):
        return None
    with nogil:
        found = em_crc32c(em_crc32c(0, at, 4), at + 8, length - 8)
    if found != crc:
        return None
    memcpy(&sequence, at + 8, 8)
    memcpy(&number, at + 16, 8)
    return sequence, number, length


def entries(const uint8_t[::1] buffer, int64_t position, int64_t length) -> list:
    """(kind, topic, base, position, start, size, end) of each entry in a frame that `read_frame` found true."""
    cdef list found = []
    cdef int64_t at = position + FRAME_HEADER, end = position + length, base, offset
    cdef uint32_t kind, topic, where, size
    cdef const uint8_t *data = &buffer[0]
    if position < 0 or end > buffer.shape[0]:
        raise ValueError("the frame is not in the buffer")
    while at + ENTRY_HEADER <= end:
        memcpy(&kind, data + at, 4)
        memcpy(&topic, data + at + 4, 4)
        memcpy(&base, data + at + 8, 8)
        memcpy(&where, data + at + 16, 4)
        memcpy(&size, data + at + 20, 4)
        memcpy(&offset, data + at + 24, 8)
        at += ENTRY_HEADER
        if at + padded(size) > end:
            break
        found.append((kind, topic, base, where, at, size, offset))
        at += padded(size)
    return found
