# Reads of a few records from many files, all at once: plain functions on memory, without the GIL.

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from echomesh.native.log_record cimport HEADER, padded

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_CLOEXEC, O_NOATIME
    int c_open "open"(const char *path, int flags)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *into, size_t size, int64_t position)

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t *thread, const void *how, void *(*run)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)

cdef enum:
    MANY = 512              # reads, from which on two threads share them: each is a call of the kernel, and little else


cdef inline int opened(const char *path) noexcept nogil:
    # Thousands of reads need not be noted with the file, where it is ours.
    cdef int fd = c_open(path, O_RDONLY | O_CLOEXEC | O_NOATIME)
    return fd if fd >= 0 else c_open(path, O_RDONLY | O_CLOEXEC)


cdef struct job_t:
    # A read of a few records: from a record's place in a file, up to the one before `until`.
    int fd
    int32_t size            # bytes to read, by what records took so far
    int64_t position, first, start, until
    char *into
    int32_t begin, end      # where those from `start` on stand in what was read; no end: not all of them are there


cdef struct jobs_t:
    job_t *first
    int64_t count


cdef inline void *work(void *given) noexcept nogil:
    cdef jobs_t *jobs = <jobs_t *>given
    cdef int64_t i
    for i in range(jobs.count):
        walk(&jobs.first[i], c_pread(jobs.first[i].fd, jobs.first[i].into, jobs.first[i].size, jobs.first[i].position))
    return NULL


cdef inline bint walk(job_t *job, int64_t there) noexcept nogil:
    # Finds the records in what was read; true if there is something else in their place.
    cdef int64_t at = 0, offset = job.first, found
    cdef uint32_t length
    job.end = 0
    while offset < job.until:
        if there - at < HEADER:
            return False
        memcpy(&length, job.into + at, 4)
        memcpy(&found, job.into + at + 8, 8)
        if length < HEADER or found != offset:
            return True
        if padded(length) > there - at:
            return False
        if offset == job.start:
            job.begin = at
        at += padded(length)
        offset += 1
    job.end = at
    return False


cdef inline void read_all(job_t *jobs, int64_t count) noexcept nogil:
    cdef jobs_t mine, others
    cdef pthread_t thread
    mine.first, mine.count = jobs, count if count < MANY else count // 2
    others.first, others.count = jobs + mine.count, count - mine.count
    if others.count and pthread_create(&thread, NULL, work, &others):
        mine.count = count
        others.count = 0
    work(&mine)
    if others.count:
        pthread_join(thread, NULL)
