from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from echomesh.native.log_msgpack cimport value_t


cdef inline bint same(value_t *v, bytes wanted) noexcept:
    return v.size == PyBytes_GET_SIZE(wanted) and memcmp(v.body, PyBytes_AS_STRING(wanted), v.size) == 0


cdef inline bint named(value_t *v, const char *name, int64_t size) noexcept nogil:
    return v.size == size and memcmp(v.body, name, size) == 0


cdef const uint8_t *event_at(const uint8_t *p, const uint8_t *end, bint learn) except? NULL
