"""The last commits of a topic, read from the memory that they were written from.

Frames stay in memory until their segments are synced, and most readers in the writer's own process want what was committed
just now: no system call, no copy and no sum for those.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from echomesh.native.log_fill cimport Filling, free_all, pthread_mutex_lock, pthread_mutex_unlock
from echomesh.native.log_frame cimport frame_t, topic_t, write_t
from echomesh.native.log_record cimport RECORD_GOOD, Records, padded
from echomesh.native.log_topic cimport Topic

cdef enum:
    MOST_PIECES = 64
    MOST_LOOKS = 512        # at writes of frames, from the last one back: who is further behind reads the segment


cdef struct piece_t:
    frame_t *frame
    const write_t *write


cdef inline int64_t first_of(const piece_t *piece) noexcept nogil:
    # The offset of its first record.
    cdef int64_t offset
    memcpy(&offset, piece.frame.data + piece.write.start + 8, 8)
    return offset


cdef inline bint is_of(const write_t *w, const topic_t *t) noexcept nogil:
    return w.topic == t and w.apart == NULL and w.length > 0


@cython.no_gc_clear     # the log is needed to let go of the frames
cdef class Recent(Records):
    """Records of one topic in one or more frames, which stay in memory as long as this is there."""

    cdef Filling log
    cdef piece_t pieces[MOST_PIECES]
    cdef int piece_count

    def __dealloc__(self):
        cdef frame_t *left = NULL
        cdef int i
        if self.piece_count:
            pthread_mutex_lock(&self.log.lock)
            for i in range(self.piece_count):
                left = self.log.let_go(self.pieces[i].frame, left)
            pthread_mutex_unlock(&self.log.lock)
            free_all(left)

    cdef bint find(self, topic_t *t, int64_t offset) noexcept nogil:
        # With the lock: whether a write with this offset is kept; it is the first piece then.
        cdef frame_t *f = self.log.kept_last
        cdef piece_t *piece = &self.pieces[0]
        cdef int64_t i
        cdef int looks = 0
        while f != NULL:
            for i in range(f.write_count - 1, -1, -1):
                looks += 1
                if looks > MOST_LOOKS:
                    return False
                if is_of(&f.writes[i], t):
                    if offset >= f.writes[i].end_offset:
                        return False
                    piece.frame = f
                    piece.write = &f.writes[i]
                    if first_of(piece) <= offset:
                        return True
            f = f.before
        return False

    cdef void hold(self, topic_t *t, int64_t max_bytes) noexcept nogil:
        # With the lock: the first piece, and those that follow it.
        cdef frame_t *f = self.pieces[0].frame
        cdef const write_t *w = self.pieces[0].write
        cdef int64_t expected = first_of(&self.pieces[0]), total = 0, i = w - f.writes
        cdef piece_t piece
        while f != NULL and total < max_bytes and self.piece_count < MOST_PIECES:
            while i < f.write_count and total < max_bytes and self.piece_count < MOST_PIECES:
                piece.frame = f
                piece.write = &f.writes[i]
                i += 1
                if piece.write.topic != t:
                    continue
                # A large record, or one that a staged commit brought: those stand in the segment alone.
                if not is_of(piece.write, t) or first_of(&piece) != expected:
                    return
                f.readers += 1
                self.pieces[self.piece_count] = piece
                self.piece_count += 1
                expected = piece.write.end_offset
                total += piece.write.length
            f = f.next
            i = 0

    cdef bint gather(self, int64_t offset, int64_t until, int64_t max_bytes, int64_t max_records) except -1:
        # Where the records from the offset on stand, as far as from the first of them.
        cdef int64_t at, end, number, room = 0, total = 0
        cdef uint32_t length
        cdef int i
        for i in range(self.piece_count):
            room += self.pieces[i].write.end_offset - first_of(&self.pieces[i])
        self.starts = <int64_t *>malloc(room * 8)
        if self.starts == NULL:
            raise MemoryError
        for i in range(self.piece_count):
            number = first_of(&self.pieces[i])
            at = self.pieces[i].write.start
            end = at + self.pieces[i].write.length
            while at < end and number < until and self.count < max_records:
                memcpy(&length, self.pieces[i].frame.data + at, 4)
                if number >= offset:
                    total += padded(length)
                    if self.count == 0:
                        self.base = self.pieces[i].frame.data + at
                    elif total > max_bytes:
                        return True
                    self.starts[self.count] = self.pieces[i].frame.data + at - self.base
                    self.count += 1
                at += padded(length)
                number += 1
        return True

    def raw(self) -> memoryview:
        """The records as stored, with headers and padding."""
        cdef int64_t total = 0
        cdef uint32_t length
        cdef Py_ssize_t i
        cdef bytes made
        cdef char *at
        for i in range(self.count):
            memcpy(&length, self.base + self.starts[i], 4)
            total += padded(length)
        made = PyBytes_FromStringAndSize(NULL, total)
        at = PyBytes_AS_STRING(made)
        for i in range(self.count):
            memcpy(&length, self.base + self.starts[i], 4)
            memcpy(at, self.base + self.starts[i], padded(length))
            at += padded(length)
        return memoryview(made)


def recent(Filling log not None, Topic topic not None, int64_t offset, int64_t max_bytes, int64_t max_records):
    """The committed records from the offset on that are still in memory, about `max_bytes` of them and at least one, or none
    at the topic's end; None when that one is not in memory, or not to be seen yet.
    """
    cdef Recent found
    cdef topic_t *t = &topic.core
    if offset < 0 or offset >= t.hold or max_records < 1:
        return None
    found = Recent.__new__(Recent)
    found.log = log
    found.first = offset
    found.stopped = RECORD_GOOD
    if offset == t.done_offset:
        return found
    pthread_mutex_lock(&log.lock)
    if found.find(t, offset):
        found.hold(t, max(max_bytes, <int64_t>1))
    pthread_mutex_unlock(&log.lock)
    if not found.piece_count:
        return None
    found.gather(offset, t.hold, max_bytes, max_records)
    return found
