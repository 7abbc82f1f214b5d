"""Files mapped into memory."""

import errno
import os
import stat

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, errno as c_errno
from posix.fcntl cimport posix_fallocate
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from echomesh.errors import FileGone, StorageError, StorageFull, UsageError


cdef reserve(int fd, int64_t size, str path):
    # Pages are taken now: a file with holes would answer a full file system with SIGBUS at the first touch.
    cdef int failed = EINTR
    while failed == EINTR:
        with nogil:
            failed = posix_fallocate(fd, 0, size)
    if failed:
        raise translated(failed, path, size)


def translated(int code, str path, size=None):
    """The error of ours for an errno of the file system."""
    if code in (errno.ENOSPC, errno.EDQUOT):
        wanted = f" for {size} bytes" if size is not None else ""
        room = f"no room{wanted}: free some space, or choose another directory (ECHOMESH_DIR)"
        return StorageFull(code, room, path)
    if code == errno.ENOENT:
        return FileGone(code, os.strerror(code), path)
    return StorageError(code, os.strerror(code), path)


cdef class Mapping:
    """A file in memory, shared with every process that maps it.

    The memory stays mapped for as long as anything refers to it: rings and views hold their mapping, so that nothing can
    be used after it was unmapped.
    """

    def __cinit__(self):
        self.base = NULL

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)

    @staticmethod
    def create(path, int64_t size):
        """Makes a new file of `size` zero bytes, all of them reserved; it must not exist."""
        if size <= 0:
            raise UsageError(f"a mapped file needs a size, not {size}")
        text = os.fspath(path)
        try:
            fd = os.open(text, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise translated(error.errno, text, size) from None
        try:
            reserve(fd, size, text)
            return map_file(fd, text, True)
        except BaseException:
            os.unlink(text)
            raise
        finally:
            os.close(fd)

    @staticmethod
    def open(path, *, bint writable=True):
        """Maps a file that is there, as large as it is."""
        text = os.fspath(path)
        # O_NONBLOCK: a FIFO put in the place of a file must not hang us.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_RDWR if writable else os.O_RDONLY)
        try:
            fd = os.open(text, flags)
        except OSError as error:
            raise translated(error.errno, text) from None
        try:
            return map_file(fd, text, writable)
        finally:
            os.close(fd)

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"Mapping({self.path!r}, {self.size} bytes)"

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.size, not self.writable, flags)


cdef Mapping map_file(int fd, str path, bint writable):
    cdef Mapping made = Mapping.__new__(Mapping)
    cdef void *base
    cdef int64_t size
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(errno.EINVAL, "not a regular file", path)
    size = status.st_size
    if size == 0:
        raise StorageError(errno.EINVAL, "an empty file", path)
    if writable:
        reserve(fd, size, path)
    base = mmap(NULL, size, PROT_READ | PROT_WRITE if writable else PROT_READ, MAP_SHARED, fd, 0)
    if base == MAP_FAILED:
        raise translated(c_errno, path, size)
    made.base = <char *>base
    made.size = size
    made.path = path
    made.writable = writable
    made.identity = (status.st_dev, status.st_ino)
    return made
