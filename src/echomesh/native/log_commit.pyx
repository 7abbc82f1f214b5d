"""Group commit: whoever commits writes all that waits with one write and one fdatasync.

One thread at a time is the leader: it takes the frame that was filled, writes its records to their segments, the frame to
the journal, syncs, shows the new high-watermarks, and wakes those who wait. It does so without the GIL, so that the disk
never waits for Python nor Python for the disk.
"""

from libc.errno cimport ENOSPC
from libc.stdint cimport int64_t

from echomesh.native.atomics cimport em_now_ns
from echomesh.native.log_fill cimport (
    NEEDS_JOURNAL, NO_ROOM, NOTHING, RAISED, after, pthread_cond_broadcast, pthread_cond_signal, pthread_cond_timedwait,
    pthread_cond_wait, pthread_mutex_lock, pthread_mutex_unlock, timespec,
)
from echomesh.native.log_frame cimport FRAME_HEADER, frame_clear, frame_free, frame_t
from echomesh.native.log_push cimport Pushes
from echomesh.native.log_topic cimport Topic

NEED_JOURNAL = NEEDS_JOURNAL

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    TURN_NS = 2000000           # how long at most a commit waits for those who were answered
    LEAST_TURN_NS = 50000
    ALONE_NS = 1000000          # a disk that takes longer for a commit is not waited for by an event loop,
    STALL_NS = 4000000          # and one that took this long just now
    STALL_PAUSE_NS = 1000000000 # not before this time is over
    HOLD_NS = 150000            # how long at most a commit waits for half of as many as the one before had
    LATE_NS = 60000             # a thread that was woken so long ago and has not begun waits for a core:
    LATE_BYTES = 512 << 10      # so much the loop commits in its place,
    LATE_WRITES = 8             # to so many segments


cdef class Commits(Pushes):
    """Commits what `Filling` collected.

    `trouble(status)` is called by the leader when a commit can't go on: a full journal file (NEED_JOURNAL), or the errno
    of a failed write or sync. It must end with `use_journal`, `rewrite` or `fail`.
    """

    def __cinit__(self, storage, water, bytes log_id, trouble, int64_t last_number, *args, **kwargs):
        self.trouble = trouble
        self.alone_ns = ALONE_NS

    cdef lead(self, int status):
        # With the leadership, without the lock: what it takes to get a commit done or refused.
        pthread_mutex_lock(&self.lock)
        self.mending = True
        pthread_mutex_unlock(&self.lock)
        try:
            while status not in (0, NOTHING):
                if status == RAISED:
                    raise self.raised
                self.trouble(status)
                status = 0
                self.forget_ahead()
                if self.busy != NULL:
                    with nogil:
                        status = self.push()
        except BaseException as error:
            if self.busy != NULL:
                self.fail(error)
            if status == RAISED or not isinstance(error, Exception):
                raise
        finally:
            self.hand_over()

    def wait(self, int64_t ticket) -> None:
        """Returns once the ticket's frame was committed or refused; commits it itself when nobody else does."""
        self.wait_for(ticket)

    cdef bint wait_for(self, int64_t ticket) except -1:
        cdef bint led
        cdef int status = 0
        while True:
            led = False
            with nogil:
                pthread_mutex_lock(&self.lock)
                while self.done_ticket < ticket and self.leader:
                    pthread_cond_wait(&self.changed, &self.lock)
                if self.done_ticket < ticket:
                    self.leader = led = True
                pthread_mutex_unlock(&self.lock)
                if led:
                    status = self.step()
                    if not status:
                        self.hand_over()
            if not led:
                return True
            if status:
                self.lead(status)

    def append(self, Topic topic, event, int64_t now, origin=None) -> int:
        """Gives the event its offset, or its twin's, and returns when it is on disk; FULL when there is no room for it now.
        """
        cdef int64_t failed = self.failed_ticket, offset = self.enter(topic, event, now, origin)
        if offset != NO_ROOM:
            if offset >= topic.core.done_offset:
                self.wait_for(topic.core.ticket)
            if self.failed_ticket != failed:
                # Something was given up meanwhile, perhaps this; then another may have its offset by now.
                self.raise_last()
        return offset

    def raise_last(self) -> None:
        """Raises what kept the last frames that were given up from the disk; the writer's business."""

    def run(self) -> None:
        """Commits when it is kicked, until `stop`: the work of a thread of its own."""
        cdef bint led, ends = False
        cdef int status = 0
        while True:
            with nogil:
                while not status:
                    pthread_mutex_lock(&self.lock)
                    self.wait_for_kick()
                    led = not self.leader and (self.busy != NULL or self.filling.size > FRAME_HEADER)
                    self.leader = self.leader or led
                    ends = self.stopping and not led
                    pthread_mutex_unlock(&self.lock)
                    if ends:
                        break
                    if led:
                        status = self.step()
                        if not status:
                            self.hand_over()
            if ends:
                return
            self.lead(status)
            status = 0

    cdef void wait_for_kick(self) noexcept nogil:
        # With the lock. After a commit those who were answered come back at once: to commit before they do would make
        # two half-full frames, each with a sync of its own, out of one. That is right when a commit takes longer than
        # they do, or half of it is done meanwhile; when it is quicker, two half-full frames, one filling while the other
        # is committed, get more done.
        cdef int64_t coming = self.answered, wait_ns = TURN_NS
        cdef timespec until
        cdef bint overlap = (
            (not self.many or 2 * self.filling.ahead >= self.filling.write_count)
            and self.push_ns < self.turn_ns * (coming + self.filling.count)
        )
        if overlap:
            wait_ns = min(max(self.push_ns, LEAST_TURN_NS), TURN_NS)
        # While the loop is at those of the commit before, more come into this frame at every moment.
        if self.turning and (self.in_turn or not (overlap and 2 * self.filling.count >= coming)):
            self.wait_for_turn(wait_ns)
        if self.turning:
            self.turning = False
            self.kicked = self.kicked or self.filling.count > 0
        self.coming = coming
        while not self.stopping and (self.leader or not self.kicked or self.holds()):
            if self.leader or not self.kicked:
                pthread_cond_wait(&self.work, &self.lock)
            else:
                until = after((self.kicked_ns + self.hold_ns() - em_now_ns()) * 1e-9)
                pthread_cond_timedwait(&self.work, &self.lock, &until)
        self.kicked = False
        self.answered = 0

    cdef int64_t hold_ns(self) noexcept nogil:
        return min(self.push_ns // 2, HOLD_NS)

    cdef bint holds(self) noexcept nogil:
        # With the lock. Those who were answered over a network come back one behind the other: a commit for the first of
        # them costs as much as one for half of them, and the others wait for it.
        return 2 * self.filling.count < self.coming and em_now_ns() - self.kicked_ns < self.hold_ns()

    cdef void wait_for_turn(self, int64_t wait_ns) noexcept nogil:
        # With the lock. Where commits go to many segments, what has come so far is copied there meanwhile.
        cdef int64_t end = em_now_ns() + wait_ns
        cdef timespec until = after(wait_ns * 1e-9)
        while self.turning and not self.stopping:
            if self.many and not self.leader:
                self.leader = True
                if not self.copy_ahead():
                    pthread_mutex_unlock(&self.lock)
                    sched_yield()
                    pthread_mutex_lock(&self.lock)
                self.leader = False
                pthread_cond_broadcast(&self.changed)
                if em_now_ns() > end:
                    break
            elif pthread_cond_timedwait(&self.work, &self.lock, &until):
                break

    cdef void hand_over(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.leader = self.mending = False
        pthread_mutex_unlock(&self.lock)
        pthread_cond_broadcast(&self.changed)
        pthread_cond_signal(&self.work)

    cdef void begin_turn(self) noexcept nogil:
        # The loop goes through those who were answered; `kick` says when it is done.
        pthread_mutex_lock(&self.lock)
        self.in_turn = True
        pthread_mutex_unlock(&self.lock)

    cdef void kick(self, bint work, bint turned, int64_t count, int64_t began) noexcept nogil:
        # With `work` there is something to commit; with `turned` the `count` that were answered since `began` have added
        # what they wanted. Without the one, and if the thread does not wait for the other, it sleeps on.
        cdef bint wakes
        pthread_mutex_lock(&self.lock)
        wakes = self.turning or (work and not (self.kicked and self.holds()))
        if work and not self.kicked:
            self.kicked = True
            self.kicked_ns = em_now_ns()
        if turned:
            self.turning = self.in_turn = False
            if count > 0:
                self.turn_ns += ((em_now_ns() - began) // count - self.turn_ns) // 8
        wakes = wakes and not self.turning
        pthread_mutex_unlock(&self.lock)
        # Without the lock: who wakes up takes it at once, and would sleep again.
        if wakes:
            pthread_cond_signal(&self.work)

    cdef bint commit_alone(self) except -1:
        # For an event loop with a quick disk and a single append in flight: commits it here, without the way to the
        # other thread and back, which takes half as long as the disk does. Or with more, when that thread has no core to
        # run on: the loop has one. After a slow sync the loop does not risk another one for a while.
        cdef bint led = False
        cdef int status = 0
        cdef int64_t began = em_now_ns()
        with nogil:
            pthread_mutex_lock(&self.lock)
            if (not self.leader and self.busy == NULL and self.push_ns < self.alone_ns and began > self.alone_from
                    and (self.filling.count == 1 or self.is_late(began))):
                self.leader = self.quiet = led = True
            pthread_mutex_unlock(&self.lock)
            if led:
                status = self.step()
                pthread_mutex_lock(&self.lock)
                self.leader = self.quiet = False
                if em_now_ns() - began > STALL_NS:
                    self.alone_from = em_now_ns() + STALL_PAUSE_NS
                # What went wrong is for the thread to put right.
                self.kicked = self.kicked or status != 0
                pthread_cond_broadcast(&self.changed)
                if self.kicked:
                    pthread_cond_signal(&self.work)
                pthread_mutex_unlock(&self.lock)
        return led and status == 0

    cdef bint is_late(self, int64_t now) noexcept nogil:
        # With the lock: whether the thread was woken for what waits, and should have begun.
        return (self.kicked and not self.turning and now - self.kicked_ns > LATE_NS
                and self.filling.size <= LATE_BYTES and not self.filling.apart_bytes
                and 0 < self.filling.write_count <= LATE_WRITES)

    def stop(self) -> None:
        """Ends `run` once nothing waits any more."""
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_cond_broadcast(&self.work)
        pthread_cond_broadcast(&self.dirty)
        pthread_mutex_unlock(&self.lock)

    def take_leadership(self) -> None:
        """Waits until nobody commits, and keeps others from it until `lead_no_more`."""
        with nogil:
            pthread_mutex_lock(&self.lock)
            while self.leader:
                pthread_cond_wait(&self.changed, &self.lock)
            self.leader = True
            pthread_mutex_unlock(&self.lock)

    def lead_no_more(self) -> None:
        """Lets others commit again."""
        self.hand_over()

    def rewrite(self) -> None:
        """Writes all that is kept in memory, and the frame that waits, to the new journal file, and syncs it."""
        cdef frame_t *f = self.kept_first
        cdef int failed = 0
        self.forget_ahead()
        while f != NULL and not failed:
            failed = self.write_journal(f)
            f = f.next
        if not failed:
            failed = self.push() if self.busy != NULL else self.sync(self.fd)
        if failed:
            raise OSError(ENOSPC, "the journal file is too small") if failed == NEEDS_JOURNAL else self.failure(failed)

    def rewrite_segments(self) -> None:
        """Writes the records of all kept frames to their segments again."""
        cdef frame_t *f = self.kept_first
        cdef int failed = 0
        self.forget_ahead()
        while f != NULL and not failed:
            failed = self.write_segments(f)
            f = f.next
        if failed:
            raise self.failure(failed)

    def fail(self, error) -> None:
        """Gives up everything that waits. Who waits for one of these learns `error`."""
        cdef int64_t first, last
        # Nobody may append before the topics are rolled back.
        self.refusal = error
        pthread_mutex_lock(&self.maps_lock)     # the loop may be copying what is given up
        pthread_mutex_lock(&self.lock)
        frame_free(self.busy)
        self.busy = NULL
        frame_clear(self.filling)
        first, last = self.done_ticket + 1, self.ticket
        self.ticket += 1
        self.filling.ticket = self.ticket
        pthread_mutex_unlock(&self.lock)
        pthread_mutex_unlock(&self.maps_lock)
        refusal = self.on_failure(first, last, error)
        self.failed_ticket = last
        self.refusal = refusal
        pthread_mutex_lock(&self.lock)
        self.done_ticket = last
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        self.tell()

    def on_failure(self, int64_t first, int64_t last, error):
        """The frames of these tickets were given up: the writer rolls back, and says whether appends stay refused."""
        return error

    def rebind(self, water, topics) -> None:
        """Shows high-watermarks in another file from now on."""
        # As the leader: nobody shows anything meanwhile.
        self.take_leadership()
        self.water = water
        for topic in topics:
            topic.bind(water)
        self.lead_no_more()

    def signal(self, int fd) -> None:
        """An eventfd that counts commits, for an event loop; -1 for none."""
        self.signal_fd = fd

    def wait_idle(self) -> None:
        """Commits until nothing waits."""
        while not self.idle:
            self.wait(self.ticket - 1 if self.filling.size <= FRAME_HEADER else self.ticket)

    @property
    def done(self) -> int:
        """The last ticket that was committed or refused."""
        return self.done_ticket

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed."""
        return self.busy == NULL and self.filling.size <= FRAME_HEADER
