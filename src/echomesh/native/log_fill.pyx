"""Appends: each takes its topic's next offset, and fills the frame that the next commit will write.

They run under the GIL, a commit without it; `lock` guards what both touch, and is held for moments only.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.errno cimport EINTR, EIO, errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from echomesh.errors import MessageTooLarge
from echomesh.native.log_frame cimport (
    FRAME_HEADER, SECTOR, frame_clear, frame_free, frame_mark, frame_new, frame_note, frame_record, frame_t,
    write_t,
)
from echomesh.native.log_sums cimport em_identity
from echomesh.native.log_record cimport MAX_RECORD, ORIGIN, padded, record_size
from echomesh.native.log_topic cimport Topic, end_t, move_end
from echomesh.native.log_water cimport Watermarks, publish, ring_all

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)
    ssize_t c_write "write"(int fd, const void *data, size_t size)
    ssize_t c_pwrite "pwrite"(int fd, const void *data, size_t size, int64_t position)

cdef enum:
    POOLED_BYTES = 64 << 20     # of frames that wait to be used again
    INDEX_STEP = 32768          # bytes of a segment between two entries of its index
    MAX_EVENT = 64 << 20

FULL = NO_ROOM              # what `add` answers when the frame takes no more for now
MAX_EVENT_BYTES = MAX_EVENT


cdef class Filling:
    """The frame that fills, the one being written, and those kept in memory until their segments are synced."""

    def __cinit__(self, storage, Watermarks water, bytes log_id, *args, int64_t frame_limit=8 << 20, int64_t kept_limit=128 << 20,
                  int64_t apart_over=64 << 10):
        cdef pthread_mutexattr_t kind
        # Held for moments only: to look again a few times is far cheaper than to sleep.
        pthread_mutexattr_init(&kind)
        pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP)
        pthread_mutex_init(&self.lock, &kind)
        pthread_mutexattr_destroy(&kind)
        pthread_cond_init(&self.changed, NULL)
        pthread_cond_init(&self.work, NULL)
        pthread_cond_init(&self.dirty, NULL)
        if len(log_id) != 16:
            raise ValueError("a log id has 16 bytes")
        memcpy(self.log_key, <char *>log_id, 16)
        self.signal_fd = -1
        self.storage = storage
        self.direct = storage.direct
        self.water = water
        self.ticket = 1
        self.frame_limit = frame_limit
        self.kept_limit = kept_limit
        self.kept_soft = kept_limit // 2    # few syncs, and room for what is appended during one
        self.apart_over = apart_over
        self.filling = frame_new()
        self.loose = frame_new()
        if self.filling == NULL or self.loose == NULL:
            raise MemoryError
        self.filling.ticket = 1

    def __dealloc__(self):
        free_all(self.kept_first)
        free_all(self.spare)
        frame_free(self.filling)
        frame_free(self.loose)
        frame_free(self.busy)
        pthread_mutex_destroy(&self.lock)
        pthread_cond_destroy(&self.changed)
        pthread_cond_destroy(&self.work)
        pthread_cond_destroy(&self.dirty)

    cdef int64_t put(self, Topic topic, const char *event, int64_t size, const char *origin, int64_t now,
                     const uint64_t *foreseen) except? -1:
        cdef int64_t needed = padded(record_size(size, origin != NULL)), offset, position, base
        cdef int64_t full, twin
        cdef uint64_t hash[2]
        cdef bint known = topic.window is not None
        cdef bint named = known and (foreseen != NULL or self.identify(topic, event, size, hash))
        if foreseen != NULL:
            hash[0], hash[1] = foreseen[0], foreseen[1]
        if size > MAX_EVENT:
            raise MessageTooLarge(size, MAX_EVENT, "the log")
        # `make_room` may let other threads run, so what it made is looked at again.
        while topic.core.fd < 0 or topic.core.position + needed > topic.core.limit:
            topic.make_room(needed)
        if not known and topic.window is not None:
            named = self.identify(topic, event, size, hash)
        if self.refusal is not None:
            raise self.refusal
        # From here on nobody else runs: the twin that is not found now can't come in between.
        if named:
            twin = topic.window.look(hash, now)
            if twin >= 0:
                return twin
        pthread_mutex_lock(&self.lock)
        full = self.filling.size + self.filling.apart_bytes
        if (full > FRAME_HEADER and full + needed > self.frame_limit) or self.kept_bytes > self.kept_limit:
            self.wants_care = self.kicked = True
            pthread_cond_signal(&self.dirty)
            pthread_cond_signal(&self.work)
            pthread_mutex_unlock(&self.lock)
            return NO_ROOM
        offset, position, base = topic.core.next_offset, topic.core.position, topic.core.base
        if now < topic.core.last_time:
            now = topic.core.last_time
        full = frame_record(self.filling, &topic.core, now, origin, event, size, self.apart_over)
        topic.core.ticket = self.filling.ticket
        pthread_mutex_unlock(&self.lock)
        if full < 0:
            raise MemoryError
        if named:
            topic.window.keep(hash, offset, now)
        # No Python objects under the lock: making one may let another thread run into it with the GIL.
        if position >= topic.core.index_at:
            topic.core.index_at = position + INDEX_STEP
            topic.marks.append((base, offset, position, now))
        return offset

    cdef bint identify(self, Topic topic, const char *event, int64_t size, uint64_t *hash):
        # The event's hash, if it names a source and an id; what the window will want is on its way from memory then.
        if not em_identity(self.log_key, &self.source, <const uint8_t *>event, size, hash):
            return False
        topic.window.expect(hash)
        return True

    def add(self, Topic topic, event, int64_t now, origin=None) -> int:
        """Gives the event its offset, or its twin's; FULL when there is no room for it now.

        It is on disk when `topic.ticket` is done; at once when the twin is.
        """
        return self.enter(topic, event, now, origin)

    cdef int64_t enter(self, Topic topic, event, int64_t now, origin) except? -1:
        cdef bytes kept
        if origin is None:
            return self.enter_from(topic, event, now, NULL)
        kept = bytes(origin)
        if len(kept) != ORIGIN:
            raise ValueError(f"an origin has {ORIGIN} bytes, not {len(kept)}")
        return self.enter_from(topic, event, now, kept)

    cdef int64_t enter_from(self, Topic topic, event, int64_t now, const char *from_where) except? -1:
        cdef Py_buffer view
        if PyBytes_CheckExact(event):
            return self.put(topic, PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event), from_where, now, NULL)
        PyObject_GetBuffer(event, &view, PyBUF_SIMPLE)
        try:
            return self.put(topic, <const char *>view.buf, view.len, from_where, now, NULL)
        finally:
            PyBuffer_Release(&view)

    def note(self, const uint8_t[::1] payload, list topics=None) -> int:
        """Adds what is no record to the frame, with which these topics' ends move to where `reserve` set them; its ticket."""
        cdef int failed
        cdef int64_t ticket, i, count = len(topics) if topics is not None else 0
        cdef Topic topic
        if self.refusal is not None:
            raise self.refusal
        pthread_mutex_lock(&self.lock)
        failed = frame_note(self.filling, <const char *>&payload[0], payload.shape[0])
        ticket = self.filling.ticket
        for i in range(count if not failed else 0):
            topic = <Topic>topics[i]
            topic.core.ticket = ticket
            failed = frame_mark(self.filling, &topic.core)
        self.kicked = True
        pthread_cond_signal(&self.work)
        pthread_mutex_unlock(&self.lock)
        if failed:
            raise MemoryError
        return ticket

    def add_loose(self, Topic topic, list events, int64_t now, list origins=None) -> list:
        """Writes events to the segment at once, without the journal; their offsets. For `os` and `none`."""
        cdef bytes event, origin
        cdef int64_t i = 0, needed, twin
        cdef uint64_t hash[2]
        cdef bint named
        cdef list offsets = []
        cdef const char *from_where
        frame_clear(self.loose)
        for event in events:
            origin = origins[i] if origins is not None else None
            from_where = <const char *>origin if origin is not None else NULL
            needed = padded(record_size(len(event), origin is not None))
            if len(event) > MAX_EVENT:
                raise MessageTooLarge(len(event), MAX_EVENT, "the log")
            if topic.core.fd < 0 or topic.core.position + needed > topic.core.limit:
                if self.loose.write_count:
                    self.flush_loose(topic)
                topic.make_room(needed)
            named = topic.window is not None and self.identify(topic, event, len(event), hash)
            twin = topic.window.look(hash, now) if named else -1
            if twin >= 0:
                offsets.append(twin)
                i += 1
                continue
            now = max(now, topic.core.last_time)
            if topic.core.position >= topic.core.index_at:
                topic.marks.append((topic.core.base, topic.core.next_offset, topic.core.position, now))
                topic.core.index_at = topic.core.position + INDEX_STEP
            offsets.append(topic.core.next_offset)
            if named:
                topic.window.keep(hash, topic.core.next_offset, now)
            if frame_record(self.loose, &topic.core, now, from_where, event, len(event), MAX_RECORD):
                raise MemoryError
            i += 1
        self.flush_loose(topic)
        return offsets

    def flush_loose(self, Topic topic) -> None:
        cdef int failed = self.write_segments(self.loose)
        frame_clear(self.loose)
        if failed:
            topic.roll_back()
            if topic.window is not None:
                topic.window.drop_from(topic.core.done_offset)
            raise self.failure(failed)
        move_end(&topic.core, end_t(
            topic.core.base, topic.core.position, topic.core.next_offset, topic.core.last_time
        ))
        publish(topic.core.slot, topic.core.next_offset)
        ring_all(self.water.base)

    def wait_for_room(self, double timeout) -> None:
        """Waits for the next commit or sync that may have made room for a FULL append."""
        cdef timespec until = after(timeout)
        with nogil:
            pthread_mutex_lock(&self.lock)
            pthread_cond_timedwait(&self.changed, &self.lock, &until)
            pthread_mutex_unlock(&self.lock)

    cdef frame_t *take_unused(self) noexcept nogil:
        # With the lock: half of the frames that nobody has needed since the last time.
        cdef int64_t upto = self.spare_bytes - self.spare_least // 2
        cdef frame_t *unused = NULL
        cdef frame_t *f
        while self.spare != NULL and self.spare_bytes > upto:
            f = self.spare
            self.spare = f.next
            self.spare_bytes -= f.room
            f.next = unused
            unused = f
        self.spare_least = self.spare_bytes
        return unused

    def call_for_care(self) -> None:
        """Wakes whoever is in `wait_for_care`."""
        pthread_mutex_lock(&self.lock)
        self.wants_care = True
        pthread_cond_signal(&self.dirty)
        pthread_mutex_unlock(&self.lock)

    def release(self, int64_t number) -> None:
        """Forgets frames up to this number: their segments are synced. Not while a leader may write them once more."""
        cdef frame_t *f
        cdef frame_t *left = NULL
        with nogil:
            pthread_mutex_lock(&self.lock)
            while self.mending:
                pthread_cond_wait(&self.changed, &self.lock)
            while self.kept_first != NULL and self.kept_first.number <= number:
                f = self.kept_first
                self.kept_first = f.next
                self.kept_bytes -= f.size + f.apart_bytes
                self.released_ticket = f.ticket
                f.dropped = True
                f.readers += 1
                left = self.let_go(f, left)
            if self.kept_first == NULL:
                self.kept_last = NULL
            else:
                self.kept_first.before = NULL
            if self.kept_bytes <= self.kept_soft:
                self.wants_care = False     # what called for it while it was under way is done
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.lock)
            self.tell()
            free_all(left)

    cdef frame_t *let_go(self, frame_t *f, frame_t *left) noexcept nogil:
        # With the lock, for a reader: the frames to be freed, with this one before them if that is the end of it.
        f.readers -= 1
        if f.readers or not f.dropped:
            return left
        if self.spare_bytes + f.room <= POOLED_BYTES:
            # Memory that was used lately: fresh one would cost a page fault for every 4 KiB.
            frame_clear(f)
            self.spare_bytes += f.room
            f.next = self.spare
            self.spare = f
            return left
        f.next = left
        return f

    def needed_bytes(self, bint kept) -> int:
        """What a new journal file must have room for: the frame that waits, and if they go there too, those kept."""
        cdef frame_t *f = self.kept_first if kept else NULL
        cdef int64_t total = 0
        while f != NULL:
            total += f.size + SECTOR
            f = f.next
        return total + (self.busy.size + SECTOR if self.busy != NULL else 0)

    @property
    def kept(self): return self.kept_bytes

    cdef void tell(self) noexcept nogil:
        # An event loop looks for answers and room.
        cdef int64_t one = 1
        if self.signal_fd >= 0:
            c_write(self.signal_fd, &one, 8)

    cdef object failure(self, int code):
        # The exception for a status of write or sync.
        return self.raised if code == RAISED else OSError(code, os.strerror(code))

    # Functions of their own: one that has a `with gil` block anywhere takes the GIL on each way out of it.

    cdef int storage_pwrite(self, int fd, const char *data, int64_t size, int64_t position) noexcept with gil:
        try:
            self.storage.pwrite(fd, data[:size], position)
        except OSError as error:
            return error.errno or EIO
        except BaseException as error:
            self.raised = error
            return RAISED
        return 0

    cdef int storage_sync(self, int fd) noexcept with gil:
        try:
            self.storage.fdatasync(fd)
        except OSError as error:
            return error.errno or EIO
        except BaseException as error:
            self.raised = error
            return RAISED
        return 0

    cdef int pwrite(self, int fd, const char *data, int64_t size, int64_t position) noexcept nogil:
        cdef ssize_t done
        if size == 0:
            return 0        # a topic's end that moves by a staged commit; its segment may not be open
        if not self.direct:
            return self.storage_pwrite(fd, data, size, position)
        while size > 0:
            done = c_pwrite(fd, data, size, position)
            if done < 0:
                if c_errno == EINTR:
                    continue
                return c_errno
            data += done
            size -= done
            position += done
        return 0

    cdef int sync(self, int fd) noexcept nogil:
        if not self.direct:
            return self.storage_sync(fd)
        # Not again after EINTR or anything else: the second call would answer for what the first one lost.
        return 0 if fdatasync(fd) == 0 else c_errno

    cdef int write_segments(self, frame_t *f, bint apart_only=False) noexcept nogil:
        cdef int64_t i
        cdef int failed
        cdef write_t *w
        for i in range(f.write_count):
            w = &f.writes[i]
            if apart_only and w.apart == NULL:
                continue
            failed = self.pwrite(w.fd, w.apart if w.apart != NULL else f.data + w.start, w.length, w.position)
            if failed:
                return failed
        return 0


cdef void free_all(frame_t *f) noexcept nogil:
    cdef frame_t *following
    while f != NULL:
        following = f.next
        frame_free(f)
        f = following


cdef timespec after(double seconds) noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    t.tv_nsec += <long>((seconds - <long>seconds) * 1e9)
    t.tv_sec += <long>seconds + t.tv_nsec // 1000000000
    t.tv_nsec %= 1000000000
    return t
