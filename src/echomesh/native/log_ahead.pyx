"""Records for many segments, copied there before their commit, while an event loop still adds to the frame.

With a thousand topics a commit touches hundreds of segments, which takes as long as the disk does. The thread that commits
has nothing to do while the loop goes through those who were just answered: in that time it copies what they have added so
far. While it waits for the disk instead, the loop copies what it has added. Nobody sees a record before its commit, and one
that fails takes the place back.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy
from posix.mman cimport munmap

from echomesh.native.atomics cimport em_now_ns
from echomesh.native.log_fill cimport (
    after, free_all, pthread_cond_timedwait, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_trylock,
    pthread_mutex_unlock, timespec,
)
from echomesh.native.log_frame cimport frame_t, write_t
from echomesh.native.log_maps cimport Maps, grant
from echomesh.native.memory_file cimport c_close, memory_file

cdef enum:
    LEAST = 16          # fewer writes are not worth the way
    UNTRIED = -2        # -1: there can't be a file in memory
    IDLE = 100          # so often nothing was wished for: nothing is going on
    WISHES_AT_ONCE = 32

cdef double WISHES_S = 0.002


cdef class Ahead(Journal):
    """What the leader may do before a commit."""

    def __cinit__(self, storage, water, bytes log_id, trouble, int64_t last_number, *args, **kwargs):
        self.maps = Maps()
        self.ahead_fd = UNTRIED
        pthread_mutex_init(&self.maps_lock, NULL)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.maps_lock)
        if self.ahead_fd >= 0:
            munmap(self.ahead_bytes, AHEAD_BYTES)
            c_close(self.ahead_fd)

    cdef bint copy_ahead(self) noexcept nogil:
        # With the lock, which it gives away meanwhile: whether something of the frame that fills was copied.
        cdef frame_t *f = self.filling
        # The last write may still grow.
        cdef int64_t count = min(f.write_count - 1 - f.ahead, <int64_t>AHEAD_WRITES), first, size, done, tried = 0
        cdef const write_t *last
        if count < LEAST or f.stuck or pthread_mutex_trylock(&self.maps_lock):
            return False
        if self.ahead_fd == UNTRIED:
            # A file in memory, from which `Maps` copies: the frame itself may move while the loop adds to it.
            self.ahead_fd = memory_file("echomesh-log", AHEAD_BYTES, &self.ahead_bytes)
        last = &f.writes[f.ahead + count - 1]
        first = f.writes[f.ahead].start
        size = last.start + last.length - first
        if self.ahead_fd < 0 or size > AHEAD_BYTES or last.apart != NULL:
            f.stuck = True
            pthread_mutex_unlock(&self.maps_lock)
            return False
        memcpy(self.ahead_writes, &f.writes[f.ahead], count * sizeof(write_t))
        memcpy(self.ahead_bytes, f.data + first, size)
        pthread_mutex_unlock(&self.lock)
        done = self.maps.copy(self.ahead_writes, count, self.ahead_fd, -first, &tried)
        pthread_mutex_lock(&self.lock)
        # Nobody commits, frees or forgets the frame before the maps are free again.
        f.ahead += done
        self.copied_ahead += done
        f.stuck = done < count
        pthread_mutex_unlock(&self.maps_lock)
        return True

    cdef void copy_beside(self) noexcept nogil:
        # For the loop, which has added to the frame that fills while the one before it is on its way to the disk.
        pthread_mutex_lock(&self.lock)
        while self.many and self.busy != NULL and self.copy_ahead():
            pass
        pthread_mutex_unlock(&self.lock)

    def wait_for_care(self, double timeout) -> bool:
        """Waits until a next journal file should be made, or segments synced; True when they should be at once."""
        cdef bint wanted
        cdef frame_t *unused
        with nogil:
            pthread_mutex_lock(&self.lock)
            if not self.wants_care and not self.wants_journal and not self.stopping:
                self.await_dirty(timeout)
            wanted = self.wants_care
            self.wants_care = self.wants_journal = False
            unused = self.take_unused()
            pthread_mutex_unlock(&self.lock)
            free_all(unused)
        return wanted

    cdef void await_dirty(self, double timeout) noexcept nogil:
        # With the lock. Where commits go to many segments, this thread makes the pages for those that come next.
        cdef int64_t end = em_now_ns() + <int64_t>(timeout * 1e9)
        cdef timespec until = after(timeout)
        cdef int idle = 0
        while not (self.wants_care or self.wants_journal or self.stopping) and em_now_ns() < end:
            if not self.many or idle == IDLE:
                pthread_cond_timedwait(&self.dirty, &self.lock, &until)
                return
            until = after(WISHES_S)
            pthread_cond_timedwait(&self.dirty, &self.lock, &until)
            until = after(max(<int64_t>0, end - em_now_ns()) * 1e-9)
            pthread_mutex_unlock(&self.lock)
            idle = 0 if self.grant_wishes() else idle + 1
            pthread_mutex_lock(&self.lock)

    cdef bint grant_wishes(self) noexcept nogil:
        cdef char *taken[WISHES_AT_ONCE]
        cdef int64_t count = WISHES_AT_ONCE, i
        cdef bint some = False
        while count == WISHES_AT_ONCE and not self.wants_care and not self.wants_journal:
            pthread_mutex_lock(&self.maps_lock)
            count = self.maps.take_wishes(taken, WISHES_AT_ONCE)
            pthread_mutex_unlock(&self.maps_lock)
            for i in range(count):
                grant(taken[i])
            some = some or count > 0
        return some

    cdef void forget_ahead(self) noexcept nogil:
        # As the leader: what stands in segments may not be on its way to the disk: their commit is to write it again.
        pthread_mutex_lock(&self.maps_lock)
        pthread_mutex_lock(&self.lock)
        self.filling.ahead = 0
        if self.busy != NULL:
            self.busy.ahead = 0
        pthread_mutex_unlock(&self.lock)
        pthread_mutex_unlock(&self.maps_lock)

    cdef int copy_rest(self, frame_t *f) noexcept nogil:
        # What can't be copied through a map is written as usual, which says what is wrong if anything is.
        cdef int failed
        pthread_mutex_lock(&self.maps_lock)
        failed = self.copy_behind(f)
        pthread_mutex_unlock(&self.maps_lock)
        return failed

    cdef int copy_behind(self, frame_t *f) noexcept nogil:
        cdef int64_t i = f.ahead, upto, tried = 0
        cdef int failed
        cdef write_t *w
        while i < f.write_count:
            upto = i
            i += self.maps.copy(&f.writes[i], f.write_count - i, self.fd, self.frame_at, &tried)
            upto = max(upto + tried, i + 1)
            while i < upto and i < f.write_count:
                w = &f.writes[i]
                if w.apart == NULL and w.length:
                    failed = self.pwrite(w.fd, f.data + w.start, w.length, w.position)
                    if failed:
                        # The next frame takes this one's place, should it be given up.
                        self.position = self.frame_at
                        return failed
                i += 1
        return 0
