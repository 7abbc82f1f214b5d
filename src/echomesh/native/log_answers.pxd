from libc.stdint cimport int64_t

cdef enum:
    PENDING = 0
    DONE = 1
    FAILED = 2
    CANCELLED = 3


cdef class Answer:
    cdef object loop
    cdef Answer behind              # the one that is answered next
    cdef int64_t since, ticket      # the frames that have its events, from the first to the last
    cdef int64_t offset
    cdef list offsets               # of `append_many`
    cdef int state
    cdef bint blocking
    cdef object callback, context, others
    cdef object failed              # a future with the error, which complains when nobody asks for it
    cdef object message             # of whoever cancelled it

    cdef object value(self)
    cdef object step(self)
    cdef bint settle(self, int state) except -1
    cdef bint fail(self, error) except -1


cdef class Answers:
    cdef Answer first, last
    cdef readonly int64_t answered  # the last ticket whose appends were answered
    cdef readonly int64_t waiting   # appends that were not
    cdef int64_t count              # of the last pass

    cdef bint push(self, Answer answer) except -1
    cdef bint run(self, int64_t done, list failures) except -1
