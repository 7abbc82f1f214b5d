from libc.stdint cimport int64_t, uint8_t, uint64_t

from echomesh.native.log_frame cimport frame_t
from echomesh.native.log_sums cimport em_source
from echomesh.native.log_topic cimport Topic
from echomesh.native.log_water cimport Watermarks

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_REALTIME

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    int PTHREAD_MUTEX_ADAPTIVE_NP
    int pthread_mutexattr_init(pthread_mutexattr_t *)
    int pthread_mutexattr_settype(pthread_mutexattr_t *, int)
    int pthread_mutexattr_destroy(pthread_mutexattr_t *)
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_destroy(pthread_cond_t *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const timespec *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_cond_broadcast(pthread_cond_t *)


cdef class Filling:
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed, work, dirty
    cdef frame_t *filling
    cdef frame_t *busy
    cdef frame_t *kept_first
    cdef frame_t *kept_last
    cdef frame_t *spare
    cdef frame_t *loose
    cdef int64_t ticket, done_ticket, kept_bytes
    cdef int64_t spare_bytes, spare_least   # and how little it was since the last look
    cdef readonly int64_t released_ticket   # frames up to this one are synced in their segments
    cdef int64_t frame_limit, kept_limit, kept_soft, apart_over
    cdef int signal_fd              # an eventfd for an event loop, or -1
    cdef bint direct, wants_care, wants_journal, stopping
    cdef bint mending               # the leader goes through the frames that are kept
    cdef bint kicked, turning       # for the thread of `run`: there is work; those who were answered may add to it,
    cdef bint in_turn               # and are just doing so
    cdef uint8_t log_key[16]        # the log id, by which events are hashed too
    cdef em_source source
    cdef Watermarks water
    cdef public object refusal      # the error that every append gets, while there is one
    cdef object storage, raised

    cdef int write_segments(self, frame_t *f, bint apart_only=*) noexcept nogil
    cdef int storage_pwrite(self, int fd, const char *data, int64_t size, int64_t position) noexcept with gil
    cdef int storage_sync(self, int fd) noexcept with gil
    cdef int pwrite(self, int fd, const char *data, int64_t size, int64_t position) noexcept nogil
    cdef int sync(self, int fd) noexcept nogil
    cdef int64_t put(self, Topic topic, const char *event, int64_t size, const char *origin, int64_t now,
                     const uint64_t *foreseen) except? -1   # what `identify` gave, or NULL
    cdef int64_t enter(self, Topic topic, event, int64_t now, origin) except? -1
    cdef int64_t enter_from(self, Topic topic, event, int64_t now, const char *from_where) except? -1
    cdef bint identify(self, Topic topic, const char *event, int64_t size, uint64_t *hash)
    cdef object failure(self, int code)
    cdef frame_t *take_unused(self) noexcept nogil
    cdef frame_t *let_go(self, frame_t *f, frame_t *left) noexcept nogil
    cdef void tell(self) noexcept nogil

cdef enum:
    NO_ROOM = -2

cdef enum:
    NOTHING = -1
    NEEDS_JOURNAL = -2
    RAISED = -3

cdef timespec after(double seconds) noexcept nogil
cdef void free_all(frame_t *f) noexcept nogil
