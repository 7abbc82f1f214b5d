# A file in memory and a map of it: the kernel copies between it and other files.

from libc.stdint cimport int64_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap

cdef extern from "<sys/mman.h>" nogil:
    int memfd_create(const char *name, unsigned int flags)
    unsigned int MFD_CLOEXEC

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int fd, int64_t position, int64_t size)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)


cdef inline int memory_file(const char *name, int64_t size, char **start) noexcept nogil:
    # Its descriptor, with the bytes at `start`; or -1 when there can't be one. All of its memory is there from now on.
    cdef int fd = memfd_create(name, MFD_CLOEXEC)
    cdef void *made = MAP_FAILED
    if fd >= 0 and posix_fallocate(fd, 0, size) == 0:
        made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if made != MAP_FAILED:
        start[0] = <char *>made
        return fd
    if fd >= 0:
        c_close(fd)
    return -1
