"""The scanner that fills columns with events."""

from libc.stdint cimport int64_t, uint8_t

from echomesh.native.log_columns cimport Columns

# Numbers behind those of the columns.
cdef enum:
    SPECVERSION = 12
    ENTIRE = 13         # the question whether bytes are an event at all

cdef enum:
    KNOWN_SLOTS = 256
    KNOWN_BYTES = 256
    MAX_NAMES = 64      # extensions of an event whose names are compared here

ctypedef struct known_t:
    int64_t size
    uint8_t data[KNOWN_BYTES]


cdef class Scanner(Columns):
    cdef object judge
    cdef readonly object refusal
    cdef const uint8_t *limit
    cdef known_t *known[11]
    cdef const uint8_t *extension[MAX_NAMES]
    cdef int64_t extension_size[MAX_NAMES]

    cdef int event(self, const uint8_t *p, int64_t n) noexcept nogil
    cdef int known_value(self, int column, const uint8_t *p, int64_t n) noexcept nogil
    cdef int extension_value(self, const uint8_t *name, int64_t name_size, const uint8_t *value, const uint8_t *end,
                             int64_t count) noexcept nogil
    cdef int ask(self, int kind, const uint8_t *p, int64_t n) noexcept with gil
