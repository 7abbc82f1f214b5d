"""One commit: a frame is written to segments and journal, synced, and shown to readers, without the GIL."""

from libc.stdint cimport int64_t

from echomesh.native.atomics cimport em_fence, em_now_ns
from echomesh.native.log_ahead cimport Ahead
from echomesh.native.log_fill cimport (
    NOTHING, pthread_cond_broadcast, pthread_cond_signal, pthread_mutex_lock, pthread_mutex_unlock,
)
from echomesh.native.log_frame cimport FRAME_HEADER, frame_new, frame_t, write_t
from echomesh.native.log_topic cimport end_t, move_end
from echomesh.native.log_water cimport ring_all, ring_slot, show

cdef extern from "<fcntl.h>" nogil:
    int sync_file_range(int fd, int64_t position, int64_t size, unsigned int flags)
    unsigned int SYNC_FILE_RANGE_WRITE

cdef enum:
    MANY = 8                    # writes of a frame, from which on its segments are written through maps
    COPIED = 64                 # and from which on some of them before the commit, when they are
    SMALL = 2048                # no larger than this on the average
    LARGE = 64 << 10            # a frame that the disk begins with while its segments are written
    LEAST_KEPT = 16 << 20       # bytes that segments are synced for, and
    WRITE_KEPT = 512 << 10      # those for each write of a frame: to sync a segment costs the same, however little it got


cdef class Pushes(Ahead):
    """Takes the frame that was filled, and gets it on disk. Only the leader may."""

    cdef int sync_apart(self, frame_t *f) noexcept nogil:
        cdef int64_t i
        cdef int failed, last = -1
        for i in range(f.write_count):
            if f.writes[i].apart != NULL and f.writes[i].fd != last:
                last = f.writes[i].fd
                failed = self.sync(last)
                if failed:
                    return failed
        return 0

    cdef int write_meanwhile(self, frame_t *f) noexcept nogil:
        # The disk begins with the journal, and the sync has less to wait for. Nobody relies on it: who only begins takes no
        # error away, so what goes wrong the sync says.
        cdef int failed
        if self.direct:
            sync_file_range(self.fd, self.frame_at, self.position - self.frame_at, SYNC_FILE_RANGE_WRITE)
        failed = self.write_segments(f)
        if failed:
            # The next frame takes this one's place, should it be given up.
            self.position = self.frame_at
        return failed

    cdef int push(self) noexcept nogil:
        cdef frame_t *f = self.busy
        cdef int failed = 0
        cdef bint mapped = self.direct and f.write_count >= MANY
        cdef bint first = not mapped and f.size >= LARGE and not f.apart_bytes   # the journal, and the segments meanwhile
        cdef int64_t took, began = em_now_ns()
        f.number = self.last_number + 1
        if not first:
            failed = self.write_segments(f, mapped)
        if not failed and f.apart_bytes:
            failed = self.sync_apart(f)
        if not failed and f.size > FRAME_HEADER:
            failed = self.write_journal(f)
            if not failed and mapped:
                failed = self.copy_rest(f)
            elif not failed and first:
                failed = self.write_meanwhile(f)
            if not failed:
                failed = self.sync(self.fd)
        if not failed:
            # One that took far longer than usual says little about the next.
            took = em_now_ns() - began
            self.push_ns += (min(took, 2 * self.push_ns) - self.push_ns) // 8 if self.push_ns else took
            self.settle(f)
        return failed

    cdef void settle(self, frame_t *f) noexcept nogil:
        # The frame is on disk: readers may see it, and who waits gets its answer.
        cdef int64_t i
        cdef write_t *w
        # Without the lock, which appends wait for: nobody else moves these ends while there is a leader.
        for i in range(f.write_count):
            w = &f.writes[i]
            move_end(w.topic, end_t(w.base, w.position + w.length, w.end_offset, w.end_time))
            show(w.topic.slot, w.end_offset if w.end_offset < w.topic.hold else w.topic.hold)
        # One fence for all of them, between what is shown and the looks at who sleeps.
        em_fence()
        for i in range(f.write_count):
            ring_slot(f.writes[i].topic.slot)
        ring_all(self.water.base)
        pthread_mutex_lock(&self.lock)
        self.last_number = f.number
        self.busy = NULL
        self.done_ticket = f.ticket
        f.next = NULL
        f.before = self.kept_last
        if self.kept_last != NULL:
            self.kept_last.next = f
        else:
            self.kept_first = f
        self.kept_last = f
        self.kept_bytes += f.size + f.apart_bytes
        if self.kept_bytes > min(self.kept_soft, max(<int64_t>LEAST_KEPT, f.write_count * WRITE_KEPT)):
            self.wants_care = True
            pthread_cond_signal(&self.dirty)
        self.answered += f.count
        self.many = self.direct and f.write_count >= COPIED and f.size < f.write_count * SMALL
        self.turning = self.signal_fd >= 0 and not self.quiet
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        if not self.quiet:
            self.tell()

    cdef void new_frame(self) noexcept nogil:
        # With the lock: another frame fills from now on. Without memory the old one goes on.
        cdef frame_t *fresh = self.spare
        if fresh != NULL:
            self.spare = fresh.next
            self.spare_bytes -= fresh.room
            self.spare_least = min(self.spare_least, self.spare_bytes)
            fresh.next = NULL
        else:
            fresh = frame_new()
        if fresh != NULL:
            self.busy = self.filling
            self.ticket += 1
            fresh.ticket = self.ticket
            self.filling = fresh

    cdef int step(self) noexcept nogil:
        # The leader's work: one commit.
        pthread_mutex_lock(&self.lock)
        if self.busy == NULL and self.filling.size > FRAME_HEADER:
            self.new_frame()
        pthread_mutex_unlock(&self.lock)
        return self.push() if self.busy != NULL else NOTHING
