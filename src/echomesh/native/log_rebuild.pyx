"""Records made again, byte for byte, from the columns of a batch and the descriptions of their events."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from echomesh.native.log_blocks cimport SLACK, as_block, column_t, grow_column
from echomesh.native.log_msgpack cimport ISO_BYTES, parse_time, write_iso
from echomesh.native.log_record cimport ORIGIN, padded, record_size, write_record
from echomesh.native.log_wire cimport (
    W_DATA, W_EXTENSION, W_FORM, W_ID, W_RAW, W_SPECVERSION, W_TIME, W_USUAL, input_t, put, put_body, put_byte, put_number,
    put_stamp, shortest, stamp_size,
)

cdef const char **KEYS = ["specversion", "id", "source", "type", "subject", "datacontenttype", "dataschema", "time",
                          "data"]
cdef int *KEY_SIZES = [11, 2, 6, 4, 7, 15, 10, 4, 4]


cdef class Rebuilder:
    """Makes records again from the columns of a batch. Each column is (validity or None, ends, bytes)."""

    cdef int64_t rows, entry
    cdef list kept
    cdef input_t texts[9]       # by the attribute's number in a description
    cdef input_t maps, names, values, wire
    cdef input_t timestamps, times, nanos, origins
    cdef column_t event, out

    def __cinit__(self, int64_t rows, dict columns not None):
        cdef int i
        self.rows, self.kept = rows, []
        for i, name in enumerate(("id", "source", "type", "subject", "datacontenttype", "dataschema"), W_ID):
            self.fill(&self.texts[i], columns[name], rows, 1)
        self.fill(&self.texts[W_DATA], columns["data"], rows, 1)
        self.fill(&self.wire, columns["wire"], rows, 1)
        self.fill(&self.maps, columns["attributes"], rows, 0)
        self.fill(&self.names, columns["names"], self.maps.ends[rows], 1)
        self.fill(&self.values, columns["values"], self.maps.ends[rows], 1)
        self.fill(&self.timestamps, columns["timestamp"], rows, 8)
        self.fill(&self.times, columns["time"], rows, 8)
        self.fill(&self.nanos, columns["nanos"], rows, 4)
        self.fill(&self.origins, columns["origin"], rows, ORIGIN)

    def __dealloc__(self):
        free(self.event.data)
        free(self.out.data)

    cdef int fill(self, input_t *c, tuple column, int64_t count, int64_t width) except -1:
        # `width` bytes for a value; 1 for text with ends, 0 for ends alone. What can't be true is refused here.
        cdef const uint8_t[::1] view
        cdef int64_t i
        valid, ends, data = column
        c.count = count
        c.valid = NULL
        c.data = NULL
        c.size = 0
        if valid is not None:
            view = valid
            self.kept.append(view)
            if view.shape[0] * 8 < count:
                raise ValueError("a column's validity is too short")
            c.valid = &view[0]
        if data is not None:
            view = data
            self.kept.append(view)
            c.data = &view[0]
            c.size = view.shape[0]
        if width > 1:
            if c.size < count * width:
                raise ValueError("a column is too short")
            return 0
        view = ends
        self.kept.append(view)
        c.ends = <const int32_t *>&view[0]
        if view.shape[0] < (count + 1) * 4 or c.ends[0] < 0:
            raise ValueError("a column's ends are too short")
        for i in range(count):
            if c.ends[i + 1] < c.ends[i]:
                raise ValueError("a column's ends go backwards")
        if width and c.ends[count] > c.size:
            raise ValueError("a column's ends lie behind its bytes")
        return 0

    def records(self, int64_t first):
        """The records with offsets from `first` on, as they stand in a segment; None when the columns do not fit together.
        """
        cdef int64_t i, us, time_ns, wanted
        cdef int32_t nano
        cdef const char *origin
        cdef int state = 0
        self.out.used = 0
        with nogil:
            for i in range(self.rows):
                self.event.used = 0
                state = self.make(i)
                if state:
                    break
                memcpy(&us, self.timestamps.data + i * 8, 8)
                memcpy(&nano, self.nanos.data + i * 4, 4)
                time_ns = us * 1000 + nano
                origin = NULL
                if self.origins.valid == NULL or self.origins.valid[i >> 3] >> (i & 7) & 1:
                    origin = <const char *>self.origins.data + i * ORIGIN
                wanted = padded(record_size(self.event.used, origin != NULL))
                if self.out.used + wanted + SLACK > self.out.room and grow_column(&self.out, wanted) < 0:
                    state = -1
                    break
                write_record(<char *>self.out.data + self.out.used, first + i, time_ns, origin,
                             <const char *>self.event.data, self.event.used)
                self.out.used += wanted
        if state < 0:
            raise MemoryError
        if state:
            return None
        made = as_block(self.out.data, self.out.used, self.out.room)
        memset(&self.out, 0, sizeof(column_t))
        return made

    cdef int make(self, int64_t row) noexcept nogil:
        # The event of a row; 1 when its description can't be followed.
        cdef const uint8_t *w = self.wire.data + self.wire.ends[row]
        cdef const uint8_t *end = self.wire.data + self.wire.ends[row + 1]
        cdef int64_t count = 0, entries = 0
        cdef uint8_t first, tag, header
        cdef int key, mode, state
        cdef uint32_t length
        cdef const uint8_t *name
        cdef int64_t name_size
        cdef int64_t at
        if w == end:
            return 1
        first = w[0]
        w += 1
        # Room for the longest header: the count is known behind the last entry.
        self.event.used = 0
        if put_number(&self.event, 0, 0, 4) < 0:
            return -1
        self.entry = self.maps.ends[row]
        while w < end:
            tag = w[0]
            w += 1
            key, mode = tag & 15, tag >> 6
            if key > W_EXTENSION or mode > W_RAW:
                return 1
            if key == W_EXTENSION:
                if self.entry >= self.maps.ends[row + 1]:
                    return 1
                name = self.names.data + self.names.ends[self.entry]
                name_size = self.names.ends[self.entry + 1] - self.names.ends[self.entry]
            else:
                name, name_size = <const uint8_t *>KEYS[key], KEY_SIZES[key]
            header = tag >> 4 & 3
            if put_body(&self.event, 0xD8 + header if header else shortest(True, name_size), name, name_size) < 0:
                return -1
            if mode == W_RAW:
                if end - w < 4:
                    return 1
                memcpy(&length, w, 4)
                w += 4
                if end - w < length:
                    return 1
                if put(&self.event, w, length) < 0:
                    return -1
                w += length
            else:
                if mode == W_FORM and w >= end:
                    return 1
                state = self.value(row, key, w[0] if mode == W_FORM else 0, mode == W_USUAL)
                if state:
                    return state
                w += mode == W_FORM
            if key == W_EXTENSION:
                self.entry += 1
            count += 1
        return self.head(first, count)

    cdef int head(self, uint8_t first, int64_t count) noexcept nogil:
        # Puts the map's header before the entries.
        cdef int size = 3 if first == 0xDE else 5 if first == 0xDF else 1 if count <= 15 else 0
        if not size or (first and size == 1):
            return 1
        self.event.used -= 5 - size
        memmove(self.event.data + size, self.event.data + 5, self.event.used - size)
        self.event.data[0] = first if first else <uint8_t>(0x80 | count)
        if size >= 3:
            self.event.data[size - 1] = <uint8_t>count
            self.event.data[size - 2] = <uint8_t>(count >> 8)
            if size == 5:
                self.event.data[1] = self.event.data[2] = 0
        return 0

    cdef int value(self, int64_t row, int key, uint8_t form, bint usual) noexcept nogil:
        cdef input_t *c
        cdef int64_t us, at = row, size
        cdef const uint8_t *p
        cdef uint8_t made[ISO_BYTES]
        if key == W_SPECVERSION:
            return put_body(&self.event, 0xA0 if usual else form, <const uint8_t *>b"1.0", 3)
        if key == W_TIME:
            if self.times.valid != NULL and not (self.times.valid[row >> 3] >> (row & 7) & 1):
                return 1
            memcpy(&us, self.times.data + row * 8, 8)
            if form == 0xA0 or 0xD9 <= form <= 0xDB:
                return put_body(&self.event, form, made, write_iso(made, us))
            return put_stamp(&self.event, us, stamp_size(us) if usual else 4 if form == 0xD6 else 8 if form == 0xD7 else 12)
        c = &self.texts[key]
        if key == W_EXTENSION:
            c, at = &self.values, self.entry
        elif c.valid != NULL and not (c.valid[row >> 3] >> (row & 7) & 1):
            return 1
        p, size = c.data + c.ends[at], c.ends[at + 1] - c.ends[at]
        if usual:
            return put_body(&self.event, shortest(key != W_DATA, size), p, size)
        if form == 0xA0 or 0xD9 <= form <= 0xDB:
            return put_body(&self.event, form, p, size)
        if key == W_DATA:
            return put_body(&self.event, form, p, size) if 0xC4 <= form <= 0xC6 else 1
        return self.typed(form, p, size) if key == W_EXTENSION else 1

    cdef int typed(self, uint8_t form, const uint8_t *p, int64_t size) noexcept nogil:
        # An extension that is no text, from its text.
        cdef int64_t us, number = 0, i
        if form == 0xC2:
            return put_byte(&self.event, 0xC3 if size == 4 else 0xC2)
        if 0xC4 <= form <= 0xC6:
            return self.binary(form, p, size)
        if form == 0xD6 or form == 0xD7 or form == 0xC7:
            if not parse_time(p, size, &us):
                return 1
            return put_stamp(&self.event, us, 4 if form == 0xD6 else 8 if form == 0xD7 else 12)
        for i in range(size and p[0] == 45, size):
            number = number * 10 + p[i] - 48
        if size and p[0] == 45:
            number = -number
        if form == 0:
            return put_byte(&self.event, <uint8_t>number)
        if 0xCC <= form <= 0xD3:
            return put_number(&self.event, form, <uint64_t>number, 1 << (form - (0xCC if form < 0xD0 else 0xD0)))
        return 1

    cdef int binary(self, uint8_t form, const uint8_t *p, int64_t size) noexcept nogil:
        cdef int64_t n = size // 4 * 3, i, k
        cdef uint32_t x
        cdef uint8_t three[3]
        cdef uint8_t c
        if size % 4:
            return 1
        if size:
            n -= (p[size - 1] == 61) + (p[size - 2] == 61)
        if put_body(&self.event, form, p, 0) < 0:
            return -1
        # The header says no bytes yet.
        for i in range(1 << (form - 0xC4)):
            self.event.data[self.event.used - 1 - i] = <uint8_t>(n >> (8 * i))
        for i in range(0, size, 4):
            x = 0
            for k in range(4):
                c = p[i + k]
                x = x << 6 | (c - 65 if 65 <= c <= 90 else c - 71 if 97 <= c <= 122 else c + 4 if 48 <= c <= 57 else
                              62 if c == 43 else 63 if c == 47 else 0)
            three[0], three[1], three[2] = <uint8_t>(x >> 16), <uint8_t>(x >> 8), <uint8_t>x
            if put(&self.event, three, min(3, n - i // 4 * 3)) < 0:
                return -1
        return 0
