"""The journal file that commits go to, and the next one that stands ready."""

from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EINTR, errno as c_errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from echomesh.native.log_fill cimport (
    NEEDS_JOURNAL, Filling, pthread_cond_signal, pthread_mutex_lock, pthread_mutex_unlock,
)
from echomesh.native.log_frame cimport SECTOR, frame_seal, frame_t

cdef extern from "<unistd.h>" nogil:
    int c_fdatasync "fdatasync"(int fd)
    ssize_t c_pwrite "pwrite"(int fd, const void *data, size_t size, int64_t position)

cdef enum:
    # The kernel keeps the file in pieces as large as the writes were. Each later write costs work for all of its piece, so
    # these are no larger than an ordinary commit.
    PIECE = 64 << 10
    SYNC_EVERY = 4 << 20

cdef char zeros[PIECE]       # never written to


def write_zeros(int fd, int64_t size) -> None:
    """Writes and syncs so many zeros, without the GIL. A sync now and then: others who sync go on between them."""
    cdef int64_t at = 0, synced = 0
    cdef ssize_t done = 0
    with nogil:
        while at < size and done >= 0:
            done = c_pwrite(fd, zeros, min(<int64_t>PIECE, size - at), at)
            if done < 0 and c_errno == EINTR:
                done = 0
            if done > 0:
                at += done
                if at - synced >= SYNC_EVERY or at == size:
                    synced = at
                    done = c_fdatasync(fd)
    if done < 0:
        PyErr_SetFromErrno(OSError)


cdef class Journal(Filling):
    """Writes frames one behind the other, and turns to the next file by itself when one is full."""

    def __cinit__(self, storage, water, bytes log_id, trouble, int64_t last_number, *args, **kwargs):
        self.fd = self.next_fd = -1
        self.last_number = last_number

    cdef bint turn(self, int64_t needed) noexcept nogil:
        # Whether the journal file, or else the next one that stands ready, takes so many bytes.
        cdef bint turned
        if self.fd >= 0 and self.position + needed <= self.size:
            return True
        # With the lock: the keeper may be putting the next one there, or taking it back.
        pthread_mutex_lock(&self.lock)
        turned = self.next_fd >= 0 and needed <= self.next_size and self.filled_count < 64
        if turned:
            if self.fd >= 0:
                self.filled[self.filled_count][0] = self.fd
                self.filled[self.filled_count][1] = self.sequence
                self.filled[self.filled_count][2] = self.last_number
                self.filled_count += 1
            self.fd = self.next_fd
            self.size = self.next_size
            self.sequence = self.next_sequence
            self.position = 0
            self.next_fd = -1
        pthread_mutex_unlock(&self.lock)
        return turned

    cdef int write_journal(self, frame_t *f) noexcept nogil:
        cdef int64_t whole
        cdef int failed
        whole = (f.size + SECTOR - 1) & ~<int64_t>(SECTOR - 1)
        if not self.turn(whole):
            return NEEDS_JOURNAL
        frame_seal(f, self.sequence, <const char *>self.log_key)
        failed = self.pwrite(self.fd, f.data, whole, self.position)
        if not failed:
            self.frame_at = self.position
            self.position += whole
            if self.next_fd < 0 and self.position > self.size // 2:
                self.call_for_journal()
        return failed

    cdef void call_for_journal(self) noexcept nogil:
        # Early enough for the keeper to have a file ready when this one is full.
        pthread_mutex_lock(&self.lock)
        if not self.wants_journal:
            self.wants_journal = True
            pthread_cond_signal(&self.dirty)
        pthread_mutex_unlock(&self.lock)

    def use_journal(self, int fd, int64_t size, int64_t sequence) -> None:
        """Goes on in another journal file; the one before is full, or abandoned."""
        self.fd, self.size, self.sequence, self.position = fd, size, sequence, 0

    def offer_journal(self, int fd, int64_t size, int64_t sequence) -> None:
        """The file to take when this one is full."""
        pthread_mutex_lock(&self.lock)
        self.next_fd, self.next_size, self.next_sequence = fd, size, sequence
        self.wants_journal = False
        pthread_mutex_unlock(&self.lock)

    def take_next(self):
        """(fd, size, sequence) of the file that was offered, which is taken back; or None."""
        cdef int fd
        pthread_mutex_lock(&self.lock)
        fd, self.next_fd = self.next_fd, -1
        pthread_mutex_unlock(&self.lock)
        return (fd, self.next_size, self.next_sequence) if fd >= 0 else None

    def take_filled(self) -> list:
        """(fd, sequence, number of the last frame) of the journal files that got full since the last call."""
        cdef int64_t found[64][3]
        cdef int count
        pthread_mutex_lock(&self.lock)
        count = self.filled_count
        memcpy(found, self.filled, sizeof(found))
        self.filled_count = 0
        pthread_mutex_unlock(&self.lock)
        return [(found[i][0], found[i][1], found[i][2]) for i in range(count)]

    @property
    def ready(self) -> bool:
        """Whether a next file stands ready."""
        return self.next_fd >= 0

    @property
    def current(self) -> int:
        """The handle of the journal file in use, or -1."""
        return self.fd
