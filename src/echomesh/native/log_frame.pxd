"""Frames: what one commit writes to the journal, little endian.

frame    0 u32 length (all of it, without the zeros up to a multiple of 512), 4 u32 CRC32C of the length's bytes and of
         all from 8 on, 8 u64 sequence number of the file, 16 u64 number of the frame, 24 first 8 bytes of the log id
entry    0 u32 kind, 4 u32 topic, 8 u64 first offset of the segment, 16 u32 position there, 20 u32 bytes that follow,
        24 u64 offset behind its last record; then the bytes, and zeros up to a multiple of 8
"""

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    FRAME_HEADER = 32
    ENTRY_HEADER = 32
    SECTOR = 512

cdef enum:
    KIND_RECORDS = 1    # records, as they stand in the segment
    KIND_APART = 2      # one large record that stands in the segment alone: 8 bytes follow, its length and CRC
    KIND_NOTE = 3       # what is no record, in MessagePack

ctypedef struct topic_t:
    uint32_t number
    int fd                          # of the segment, or -1
    int64_t next_offset, base, position, limit, last_time, index_at
    int64_t done_offset, done_base, done_position, done_time    # as of the last commit; others read them by `read_end`
    int64_t done_version            # odd while they change
    int64_t hold                    # readers see nothing from this offset on: a staged commit is still being copied
    int64_t ticket                  # of the last frame with something of this topic
    char *slot
    int64_t turn                    # goes up with each segment and each handle
    char *map                       # the committing thread's own: the segment of `map_turn`, or NULL
    int64_t map_turn
    int map_place

ctypedef struct write_t:
    topic_t *topic
    int fd
    char *apart                     # a large record's own bytes; else they stand in the frame
    int64_t base, position, start, length, end_offset, end_time, turn

ctypedef struct frame_t:
    frame_t *next
    frame_t *before                 # of those that are kept
    char *data
    int64_t size, room
    write_t *writes
    int64_t write_count, write_room
    int64_t ticket, number
    int64_t apart_bytes
    int64_t count                   # of its records
    int64_t ahead                   # writes from the first on that stand in their segments already,
    bint stuck                      # which is as far as it gets before the commit
    int64_t readers                 # who look into it, and keep it when it is not kept for the segments any more
    bint dropped                    # which is so

cdef frame_t *frame_new() noexcept nogil
cdef void frame_free(frame_t *f) noexcept nogil
cdef void frame_clear(frame_t *f) noexcept nogil
cdef int frame_record(frame_t *f, topic_t *t, int64_t time_ns, const char *origin, const char *event,
                      int64_t event_size, int64_t apart_over) noexcept nogil
cdef int frame_note(frame_t *f, const char *note, int64_t size) noexcept nogil
cdef int frame_mark(frame_t *f, topic_t *t) noexcept nogil
cdef int64_t frame_seal(frame_t *f, int64_t sequence, const char *log_id) noexcept nogil
