"""How an event's bytes differ from what its columns alone would make: a short description, the same for most."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.log_blocks cimport as_block, column_t, grow, grow_column
from echomesh.native.log_msgpack cimport (
    IS_BIN, IS_BOOL, IS_INT, IS_STR, IS_TIME, ISO_BYTES, parse_time, read_count, read_value, stamp_ns, value_t, write_iso,
)
from echomesh.native.log_record cimport HEADER, ORIGIN, Records

cdef const char **KEYS = ["specversion", "id", "source", "type", "subject", "datacontenttype", "dataschema", "time",
                          "data"]
cdef int *KEY_SIZES = [11, 2, 6, 4, 7, 15, 10, 4, 4]


cdef int which(const uint8_t *p, int64_t n) noexcept nogil:
    cdef int i
    for i in range(W_EXTENSION):
        if n == KEY_SIZES[i] and memcmp(p, KEYS[i], n) == 0:
            return i
    return W_EXTENSION


cdef int describe_value(column_t *c, int key, uint8_t tag, const uint8_t *at, const uint8_t *after) noexcept nogil:
    # Puts the entry of one value; -1 when memory is short.
    cdef value_t v
    cdef uint8_t first = at[0], form = 0
    cdef uint8_t made[ISO_BYTES]
    cdef int64_t seconds, ns, us, size
    cdef uint32_t length = <uint32_t>(after - at)
    cdef int mode = W_RAW
    read_value(at, after, &v)
    if v.kind == IS_STR or v.kind == IS_BIN:
        form = 0xA0 if first < 0xC0 else first
        mode = W_FORM
        if key == W_TIME:
            if v.kind == IS_BIN or v.size > ISO_BYTES or not parse_time(v.body, v.size, &us):
                mode = W_RAW
            else:
                size = write_iso(made, us)
                if size != v.size or memcmp(made, v.body, size) != 0:
                    mode = W_RAW
        elif form == shortest(key != W_DATA, v.size) and (v.kind == IS_BIN) == (key == W_DATA):
            mode = W_USUAL
    elif v.kind == IS_TIME and stamp_ns(v.body, v.size, &seconds, &ns) and ns % 1000 == 0:
        us = seconds * 1000000 + ns // 1000
        form = first
        size = 2 if first == 0xD6 or first == 0xD7 else 3 if first == 0xC7 and v.size == 12 else 0
        # In `attributes` it is text, of which the ordinary one is read back.
        if size and (key == W_TIME or parse_time(made, write_iso(made, us), &us)):
            mode = W_USUAL if key == W_TIME and v.size == stamp_size(us) else W_FORM
    elif v.kind == IS_INT or v.kind == IS_BOOL:
        form = 0 if first < 0x80 or first >= 0xE0 else 0xC2 if v.kind == IS_BOOL else first
        mode = W_FORM
    if put_byte(c, <uint8_t>(tag | mode << 6)) < 0:
        return -1
    if mode == W_FORM:
        return put_byte(c, form)
    if mode == W_RAW:
        return -1 if put(c, &length, 4) < 0 or put(c, at, length) < 0 else 0
    return 0


cdef int describe(column_t *c, const uint8_t *p, int64_t n) noexcept nogil:
    # 0, or -1 when memory is short, or 1 for what is no flat map.
    cdef const uint8_t *end = p + n
    cdef const uint8_t *at
    cdef int64_t count = 0, i
    cdef value_t name, v
    cdef uint8_t first = p[0] if n else 0, tag
    cdef int key
    p = read_count(p, end, &count)
    if p == NULL:
        return 1
    if put_byte(c, 0 if first & 0xF0 == 0x80 else first) < 0:
        return -1
    for i in range(count):
        first = p[0] if p < end else 0
        p = read_value(p, end, &name)
        if p == NULL or name.kind != IS_STR:
            return 1
        key = which(name.body, name.size)
        tag = <uint8_t>key
        if first >= 0xC0 and first != shortest(True, name.size):
            tag |= (first - 0xD8) << 4
        at = p
        p = read_value(p, end, &v)
        if p == NULL:
            return 1
        if describe_value(c, key, tag, at, p) < 0:
            return -1
    return 0 if p == end else 1


def describe_records(Records records not None, int64_t start, int64_t stop) -> tuple:
    """Ends and bytes of the descriptions of these records, ns beyond the microsecond, and origins with their validity.

    None when one of them has no description.
    """
    cdef column_t c
    cdef int64_t i, time_ns, skip, rows = stop - start, room
    cdef const uint8_t *record
    cdef uint32_t length
    cdef int state = 0
    if not 0 <= start <= stop <= records.count:
        raise IndexError(f"{start} to {stop}")
    memset(&c, 0, sizeof(c))
    nanos = bytearray(rows * 4)
    origins = bytearray(rows * ORIGIN)
    valid = bytearray((rows + 7) // 8)
    cdef uint8_t[::1] nanos_view = nanos, origins_view = origins, valid_view = valid
    cdef int32_t nano
    if grow_column(&c, 0) < 0 or grow(<void **>&c.offsets, &room, (rows + 1) * 4) < 0:
        state = -1
    else:
        c.offsets[0] = 0
        with nogil:
            for i in range(rows):
                record = <const uint8_t *>records.base + records.starts[start + i]
                memcpy(&length, record, 4)
                memcpy(&time_ns, record + 16, 8)
                nano = <int32_t>(time_ns % 1000 + (1000 if time_ns % 1000 < 0 else 0))
                memcpy(&nanos_view[i * 4], &nano, 4)
                skip = HEADER
                if record[24]:
                    memcpy(&origins_view[i * ORIGIN], record + HEADER, ORIGIN)
                    valid_view[i >> 3] |= 1 << (i & 7)
                    skip += ORIGIN
                state = describe(&c, record + skip, length - skip)
                if state:
                    break
                c.offsets[i + 1] = <int32_t>c.used
    if state == 0:
        return (as_block(c.offsets, (rows + 1) * 4, room), as_block(c.data, c.used, c.room)), nanos, (valid, origins)
    free(c.data)
    free(c.offsets)
    if state < 0:
        raise MemoryError
    return None
