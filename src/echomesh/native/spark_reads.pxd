# Reads of a few records from many files, all at once: plain functions on memory, without the GIL.

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from echomesh.native.log_record cimport HEADER, padded

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_CLOEXEC, O_NOATIME
    int c_open "open"(const char *path, int flags)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *into, size_t size, int64_t position)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec *parts, int count, int64_t position)

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t *thread, const void *how, void *(*run)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)

cdef enum:
    MANY = 512              # reads, from which on two threads share them: each is a call of the kernel, and little else
    PARTS = 1024            # that one call copies; the kernel takes no more


cdef inline int opened(const char *path) noexcept nogil:
    # Thousands of reads need not be noted with the file, where it is ours.
    cdef int fd = c_open(path, O_RDONLY | O_CLOEXEC | O_NOATIME)
    return fd if fd >= 0 else c_open(path, O_RDONLY | O_CLOEXEC)


cdef struct job_t:
    # A read of a few records: from a record's place in a file, up to the one before `until`.
    int fd
    char *mapped            # the same place in a map of the file, or NULL: the bytes are copied from there
    int32_t size            # bytes to read, by what records took so far
    int64_t position, first, start, until
    char *into
    int32_t begin, end      # where those from `start` on stand in what was read; no end: not all of them are there


cdef struct jobs_t:
    job_t *first
    int64_t count


cdef inline void *work(void *given) noexcept nogil:
    cdef jobs_t *jobs = <jobs_t *>given
    cdef job_t *job
    cdef int64_t i
    for i in range(jobs.count):
        job = &jobs.first[i]
        walk(job, job.size if job.mapped != NULL else c_pread(job.fd, job.into, job.size, job.position))
    return NULL


cdef inline void copy(job_t *jobs, int64_t count, int fd, const char *memory) noexcept nogil:
    # Has the kernel copy what is mapped, a thousand files a call, into the file that `memory` is a map of, where each goes
    # behind the one before. A page that can't be had ends such a call early, where a load of our own would end the process:
    # all of them are read then, and a read says what is wrong.
    cdef iovec parts[PARTS]
    cdef int used
    cdef int64_t i = 0, first, size, position
    while i < count:
        used, first, size, position = 0, i, 0, 0
        while i < count and used < PARTS:
            if jobs[i].mapped != NULL:
                if not used:
                    position = jobs[i].into - memory
                parts[used].iov_base = jobs[i].mapped
                parts[used].iov_len = jobs[i].size
                size += jobs[i].size
                used += 1
            i += 1
        if used and pwritev(fd, parts, used, position) != size:
            for first in range(first, i):
                jobs[first].mapped = NULL


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
