"""Segments that the committing thread has mapped, to write small records into many of them with one system call."""

from libc.stdint cimport int64_t

from echomesh.native.log_frame cimport topic_t, write_t

cdef enum:
    MAPS = 1024
    WISHES = 2048

ctypedef struct map_t:
    char *base
    topic_t *topic
    int64_t wished              # up to where pages are there, or wished for
    int64_t call                # of `copy`, which used it last


cdef class Maps:
    cdef map_t held[MAPS]
    cdef int count, oldest
    cdef char *wishes[WISHES]   # where pages will be wanted soon
    cdef int64_t wished, granted
    cdef int64_t calls          # of `copy`
    cdef bint crowded           # there are more topics than maps: what is wished for is gone before it is used

    cdef void wish(self, map_t *place, int64_t end) noexcept nogil
    cdef int64_t take_wishes(self, char **taken, int64_t most) noexcept nogil
    cdef char *of(self, topic_t *t, int fd, int64_t turn) noexcept nogil
    cdef int64_t copy(self, const write_t *writes, int64_t count, int fd, int64_t position, int64_t *upto) noexcept nogil


cdef void grant(char *start) noexcept nogil
