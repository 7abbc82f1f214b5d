from libc.stdint cimport int64_t, uint64_t

from echomesh.native.log_answers cimport Answer, Answers
from echomesh.native.log_commit cimport Commits
from echomesh.native.log_pieces cimport Pieces
from echomesh.native.log_topic cimport Topic


cdef class Appends(Answers):
    cdef Commits commits
    cdef object core, loop, clock, kick_later, pass_later
    cdef object environment         # the one that `names` is for
    cdef dict names, by_environment
    cdef object line                # (answer, topic, events, origins, how many were entered, bytes) that wait for room
    cdef readonly int64_t line_bytes
    cdef int64_t line_limit
    cdef int signal_fd
    cdef bint kicking, passing, closed
    cdef public object on_pass      # called in the loop after each pass of answers, or None
    cdef object room, idle          # futures of those who wait for an empty line, and for all answers

    cdef int64_t now(self) except? -1
    cdef Topic find(self, environment, topic)
    cdef bint foresee(self, topic, const char *event, int64_t size, environment, uint64_t *hash) except -1
    cdef Answer append_at(self, topic, const char *event, int64_t size, environment, const uint64_t *foreseen, int64_t now)
    cdef Answer placed(self, Answer answer, Topic found, event, origin, int64_t offset)
    cdef bint entered(self, Answer answer, Topic topic) except -1
    cdef Py_ssize_t enter(self, Answer answer, Topic topic, list events, Pieces pieces, object origins, Py_ssize_t i) except -1
    cdef bint queue(self, Answer answer, Topic topic, list events, object origins, Py_ssize_t count) except -1
    cdef bint advance(self) except -1
