"""How an event was encoded, beside its columns: what is needed to make its bytes again. See docs/format-log.md."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from echomesh.native.log_blocks cimport column_t, push

# The low four bits of an entry's first byte: which attribute.
cdef enum:
    W_SPECVERSION = 0
    W_ID = 1
    W_SOURCE = 2
    W_TYPE = 3
    W_SUBJECT = 4
    W_DATACONTENTTYPE = 5
    W_DATASCHEMA = 6
    W_TIME = 7
    W_DATA = 8
    W_EXTENSION = 9     # the next one of `attributes`

# Two bits for the header of the name (shortest, 0xD9, 0xDA, 0xDB), and two for the value.
cdef enum:
    W_USUAL = 0     # as echomesh itself writes it
    W_FORM = 1      # a byte follows: the first byte of the value; 0xA0 for the shortest str, 0 for an int in it
    W_RAW = 2       # four bytes length follow, then the value as it stands

ctypedef struct input_t:
    const uint8_t *valid
    const int32_t *ends
    const uint8_t *data
    int64_t count, size     # values, and bytes of them


cdef inline int put(column_t *c, const void *p, int64_t n) noexcept nogil:
    return push(c, <const uint8_t *>p, n, <const uint8_t *>p)


cdef inline int put_byte(column_t *c, uint8_t byte) noexcept nogil:
    return push(c, &byte, 1, &byte)


cdef inline int put_number(column_t *c, uint8_t first, uint64_t number, int bytes) noexcept nogil:
    # A header byte and a big-endian number.
    cdef uint8_t made[9]
    cdef int i
    made[0] = first
    for i in range(bytes):
        made[1 + i] = <uint8_t>(number >> (8 * (bytes - 1 - i)))
    return push(c, made, 1 + bytes, made)


cdef inline int put_body(column_t *c, uint8_t form, const uint8_t *p, int64_t n) noexcept nogil:
    # A str or bin with this header: 0xA0 and 0xC4 are the shortest that does unless `form` names another.
    cdef int failed
    if form == 0xA0 and n <= 31:
        failed = put_byte(c, <uint8_t>(0xA0 | n))
    elif form == 0xD9 or form == 0xC4:
        failed = put_number(c, form, n, 1)
    elif form == 0xDA or form == 0xC5:
        failed = put_number(c, form, n, 2)
    else:
        failed = put_number(c, form, n, 4)
    return -1 if failed < 0 or put(c, p, n) < 0 else 0


cdef inline uint8_t shortest(bint text, int64_t n) noexcept nogil:
    if text and n <= 31:
        return 0xA0
    return (0xD9 if text else 0xC4) + (0 if n <= 0xFF else 1 if n <= 0xFFFF else 2)


cdef inline int put_stamp(column_t *c, int64_t us, int size) noexcept nogil:
    # A timestamp of 4, 8 or 12 bytes.
    cdef int64_t seconds = us // 1000000 - (us % 1000000 < 0), ns = (us - seconds * 1000000) * 1000
    if size == 4:
        return -1 if put_byte(c, 0xD6) < 0 or put_number(c, 0xFF, <uint64_t>seconds, 4) < 0 else 0
    if size == 8:
        return -1 if put_byte(c, 0xD7) < 0 or put_number(c, 0xFF, <uint64_t>ns << 34 | <uint64_t>seconds, 8) < 0 else 0
    if put_byte(c, 0xC7) < 0 or put_byte(c, 12) < 0 or put_number(c, 0xFF, <uint64_t>ns, 4) < 0:
        return -1
    return -1 if put_number(c, <uint8_t>(seconds >> 56), <uint64_t>seconds, 7) < 0 else 0


cdef inline int stamp_size(int64_t us) noexcept nogil:
    # The shortest that holds the time.
    if us < 0 or us >= <int64_t>1000000 << 34:
        return 12
    return 4 if us % 1000000 == 0 and us < <int64_t>1000000 << 32 else 8
