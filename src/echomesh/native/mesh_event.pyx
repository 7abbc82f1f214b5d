"""Events that keep to the standard, told from others without building them: only what Python judged before passes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from echomesh.native.log_msgpack cimport (
    IS_BIN, IS_STR, IS_TIME, parse_time, read_count, read_value, stamp_us, text_ok, utf8_ok, value_t,
)

cdef enum:
    MOST_KNOWN = 1024       # sources, types and media types that were judged by Python before
    LONGEST_KNOWN = 256


cdef class Known:
    """Texts that were found good before; sources and types come again and again."""

    cdef set texts
    cdef bytes last

    def __cinit__(self):
        self.texts = set()
        self.last = b""

    cdef bint has(self, value_t *v) except -1:
        if same(v, self.last):
            return True
        text = PyBytes_FromStringAndSize(<const char *>v.body, v.size)
        if text in self.texts:
            self.last = text
            return True
        return False

    cdef int add(self, value_t *v) except -1:
        if v.size <= LONGEST_KNOWN:
            if len(self.texts) >= MOST_KNOWN:
                self.texts.clear()
            self.texts.add(PyBytes_FromStringAndSize(<const char *>v.body, v.size))
        return 0


cdef Known sources = Known(), types = Known(), media_types = Known()


cdef enum:
    SPECVERSION = 1
    ID = 2
    SOURCE = 4
    TYPE = 8
    REQUIRED = 15
    DATACONTENTTYPE = 16
    SUBJECT = 32
    TIME = 64
    DATA = 128


cdef int attribute(value_t *name) noexcept nogil:
    if named(name, "id", 2):
        return ID
    if named(name, "data", 4):
        return DATA
    if named(name, "time", 4):
        return TIME
    if named(name, "type", 4):
        return TYPE
    if named(name, "source", 6):
        return SOURCE
    if named(name, "subject", 7):
        return SUBJECT
    if named(name, "specversion", 11):
        return SPECVERSION
    if named(name, "datacontenttype", 15):
        return DATACONTENTTYPE
    return 0


cdef bint sound_time(value_t *v) noexcept nogil:
    cdef int64_t us
    if v.kind == IS_TIME:
        return stamp_us(v.body, v.size, &us)
    return v.kind == IS_STR and parse_time(v.body, v.size, &us)


cdef const uint8_t *event_at(const uint8_t *p, const uint8_t *end, bint learn) except? NULL:
    # Where the event at p ends; NULL when Python has to judge it. With `learn` it was judged: its texts are good.
    cdef value_t name, v
    cdef int64_t count = 0, i
    cdef int seen = 0, which
    p = read_count(p, end, &count)
    if p == NULL or count > 8:
        return NULL
    for i in range(count):
        p = read_value(p, end, &name)
        if p == NULL or name.kind != IS_STR:
            return NULL
        p = read_value(p, end, &v)
        if p == NULL:
            return NULL
        which = attribute(&name)
        if which == 0 or seen & which:
            return NULL
        seen |= which
        if which == DATA:
            if v.kind != IS_BIN and not (v.kind == IS_STR and utf8_ok(v.body, v.size, False)):
                return NULL
        elif which == TIME:
            if not sound_time(&v):
                return NULL
        elif v.kind != IS_STR or v.size == 0:
            return NULL
        elif which == ID or which == SUBJECT:
            if not text_ok(v.body, v.size):
                return NULL
        elif which == SPECVERSION:
            if not named(&v, "1.0", 3):
                return NULL
        else:
            known = sources if which == SOURCE else types if which == TYPE else media_types
            if learn:
                (<Known>known).add(&v)
            elif not (<Known>known).has(&v):
                return NULL
    return p if seen & REQUIRED == REQUIRED else NULL


def learn(bytes event not None) -> None:
    """The event was judged and found good: the next one with its source and type passes at once."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(event)
    event_at(p, p + PyBytes_GET_SIZE(event), True)


def sound(bytes event not None) -> bool:
    """Whether the event is known to be good; False says nothing against it."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(event)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(event)
    return event_at(p, end, False) == end
