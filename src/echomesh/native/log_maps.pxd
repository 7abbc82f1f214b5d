"""Segments that the committing thread has mapped, to write small records into many of them with one system call."""

from libc.stdint cimport int64_t

from echomesh.native.log_frame cimport topic_t, write_t

cdef enum:
    MAPS = 1024

ctypedef struct map_t:
    char *base
    topic_t *topic


cdef class Maps:
    cdef map_t held[MAPS]
    cdef int count, oldest

    cdef char *of(self, topic_t *t, int fd, int64_t turn) noexcept nogil
    cdef int64_t copy(self, const write_t *writes, int64_t count, int fd, int64_t position, int64_t *upto) noexcept nogil
