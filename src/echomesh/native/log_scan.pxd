"""The scanner that fills columns with events."""

from libc.stdint cimport int64_t, uint8_t

from echomesh.native.log_columns cimport Columns
from echomesh.native.log_msgpack cimport value_t

# Numbers behind those of the columns.
cdef enum:
    SPECVERSION = 12
    ENTIRE = 13         # the question whether bytes are an event at all

cdef enum:
    KNOWN_SLOTS = 256
    KNOWN_BYTES = 256
    MAX_NAMES = 64      # extensions of an event whose names are compared here
    EXPECTED = 16       # attributes of an event that are expected to be those of the event before
    HEAD = 56

ctypedef struct known_t:
    int64_t size
    uint8_t data[KNOWN_BYTES]

# What stood at a place of the event before: a name, or a name with the value that was found good with it.
ctypedef struct expected_t:
    uint8_t head[HEAD + 8]
    int64_t size        # 0: nothing
    int64_t value       # where the value's text begins, 0 when the value is not part of it
    int column
    bint varies


cdef class Scanner(Columns):
    cdef object judge
    cdef readonly object refusal
    cdef const uint8_t *limit
    cdef known_t *known[11]
    cdef expected_t expected[EXPECTED]
    cdef const uint8_t *extension[MAX_NAMES]
    cdef int64_t extension_size[MAX_NAMES]

    cdef int event(self, const uint8_t *p, int64_t n) noexcept nogil
    cdef void expect(self, int64_t place, int column, const uint8_t *key, const uint8_t *at, const value_t *v,
                     const uint8_t *end) noexcept nogil
    cdef int known_value(self, int column, const uint8_t *p, int64_t n) noexcept nogil
    cdef int extension_value(self, const uint8_t *name, int64_t name_size, const uint8_t *value, const uint8_t *end,
                             int64_t count) noexcept nogil
    cdef int ask(self, int kind, const uint8_t *p, int64_t n) noexcept with gil
