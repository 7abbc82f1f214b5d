"""Records for many segments at once.

A frame with a record for each of 256 topics would take 256 calls of pwrite, 3 µs each on ext4: more than everything else
that an append costs. Instead the segments are mapped, and one preadv copies from the journal file, where the frame has just
been written, into all of them. The kernel does the copying: where a page can't be had (the disk is full or broken, the file
shorter than it should be) the call comes back short, while a store of our own would end the process with SIGBUS.

Half of that copying would be page faults, the first touch of each page. So the next pages of a map are wished for some time
before they are needed, and another thread has the kernel make them.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from echomesh.native.log_frame cimport topic_t, write_t

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *start, size_t size, int advice)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t preadv(int fd, const iovec *iov, int count, int64_t position)

cdef enum:
    MAP_BYTES = 64 << 20        # of a segment; what stands behind is written by pwrite
    SMALL = 4096                # larger ones are written by pwrite as well
    PARTS = 512                 # of one call; the kernel takes 1024
    PAGE = 4096
    AT_ONCE = 4 * PAGE          # wished for
    POPULATE_WRITE = 23         # MADV_POPULATE_WRITE, of Linux 5.14; older ones do nothing


cdef void grant(char *start) noexcept nogil:
    # The pages will be there, and writable, if they can be; else the copy says why they can't. No byte changes: should the
    # map have made room for another one meanwhile, that one has some pages early.
    madvise(start, AT_ONCE, POPULATE_WRITE)


cdef class Maps:
    """Maps by topic, the oldest of which makes room for a new one. Only one thread at a time may use them."""

    def __cinit__(self):
        memset(self.held, 0, sizeof(self.held))

    def __dealloc__(self):
        cdef int i
        for i in range(MAPS):
            if self.held[i].base != NULL:
                munmap(self.held[i].base, MAP_BYTES)

    cdef char *of(self, topic_t *t, int fd, int64_t turn) noexcept nogil:
        # The map of the topic's segment; NULL when there can't be one.
        cdef map_t *place
        cdef void *made
        if t.map != NULL and t.map_turn == turn:
            self.held[t.map_place].call = self.calls
            return t.map
        place = &self.held[t.map_place if t.map != NULL else self.oldest]
        if place.base != NULL and place.call == self.calls:
            # This very call has a copy into it before it, and the memory may be another segment's as soon as it is free.
            return NULL
        made = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if made == MAP_FAILED:
            return NULL
        if t.map == NULL:
            t.map_place = self.oldest
            self.oldest = (self.oldest + 1) % MAPS
        if place.base != NULL:
            munmap(place.base, MAP_BYTES)
            self.crowded = self.crowded or place.topic != t
            place.topic.map = NULL
            self.granted = self.wished      # some may have been for that memory
        place.base = <char *>made
        place.wished = 0
        place.topic = t
        place.call = self.calls
        t.map = place.base
        t.map_turn = turn
        return t.map

    cdef void wish(self, map_t *place, int64_t end) noexcept nogil:
        # A record ends there: the last page that is there must not be begun before there are more.
        cdef int64_t start = max(place.wished, end & ~<int64_t>(PAGE - 1))
        if end <= place.wished - PAGE or self.crowded or start + AT_ONCE > MAP_BYTES or self.wished - self.granted == WISHES:
            return
        self.wishes[self.wished % WISHES] = place.base + start
        self.wished += 1
        place.wished = start + AT_ONCE

    cdef int64_t take_wishes(self, char **taken, int64_t most) noexcept nogil:
        cdef int64_t count = 0
        while count < most and self.granted < self.wished:
            taken[count] = self.wishes[self.granted % WISHES]
            self.granted += 1
            count += 1
        return count

    cdef int64_t copy(self, const write_t *writes, int64_t count, int fd, int64_t position, int64_t *upto) noexcept nogil:
        # Copies the first of these writes out of a file, where their frame stands at `position`. How many were done, which
        # may be none; `upto` is behind the last one that was tried.
        cdef iovec parts[PARTS]
        cdef char between[SMALL]
        cdef int used = 0
        cdef int64_t i = 0, at = 0, first = 0, gap
        cdef const write_t *w
        cdef char *target
        self.calls += 1
        while i < count and used + 2 <= PARTS and i < MAPS:
            w = &writes[i]
            if w.length == 0:
                i += 1      # a topic's end that moves, without bytes
                continue
            if w.apart != NULL or w.length > SMALL or w.position + w.length > MAP_BYTES:
                break
            gap = w.start - at if used else 0
            if gap > SMALL:
                break
            target = self.of(w.topic, w.fd, w.turn)
            if target == NULL:
                break
            self.wish(&self.held[w.topic.map_place], w.position + w.length)
            if not used:
                first = at = w.start
            if gap:
                parts[used].iov_base = between
                parts[used].iov_len = gap
                used += 1
            parts[used].iov_base = target + w.position
            parts[used].iov_len = w.length
            used += 1
            at = w.start + w.length
            i += 1
        upto[0] = i
        return i if not used or preadv(fd, parts, used, position + first) == at - first else 0
