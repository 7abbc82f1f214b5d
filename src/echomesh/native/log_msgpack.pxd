"""MessagePack values as an event may have them, times, and texts: plain functions on memory, with the rules of `events`.

What none of these takes is left to Python to judge, or is no event; see docs/decisions/0013-scanning-into-arrow.md.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    uint16_t swap16 "__builtin_bswap16"(uint16_t) noexcept nogil
    uint32_t swap32 "__builtin_bswap32"(uint32_t) noexcept nogil
    uint64_t swap64 "__builtin_bswap64"(uint64_t) noexcept nogil
    bint likely "__builtin_expect"(bint, long) noexcept nogil

cdef enum:
    IS_STR = 1
    IS_BIN = 2
    IS_INT = 3
    IS_BOOL = 4
    IS_TIME = 5

cdef enum:
    ISO_BYTES = 64      # room for a time, and for any int, in canonical form

ctypedef struct value_t:
    int kind
    const uint8_t *body     # of a str, bin or timestamp
    int64_t size
    int64_t number          # of an int or bool


cdef inline uint16_t big16(const uint8_t *p) noexcept nogil:
    cdef uint16_t x
    memcpy(&x, p, 2)
    return swap16(x)


cdef inline uint32_t big32(const uint8_t *p) noexcept nogil:
    cdef uint32_t x
    memcpy(&x, p, 4)
    return swap32(x)


cdef inline uint64_t big64(const uint8_t *p) noexcept nogil:
    cdef uint64_t x
    memcpy(&x, p, 8)
    return swap64(x)


cdef inline const uint8_t *body_of(value_t *v, int kind, const uint8_t *body, uint64_t size,
                                   const uint8_t *end) noexcept nogil:
    v.kind = kind
    v.body = body
    v.size = <int64_t>size
    return body + size if body <= end and <uint64_t>(end - body) >= size else NULL


cdef inline const uint8_t *number_of(value_t *v, int64_t number, const uint8_t *after,
                                     const uint8_t *end) noexcept nogil:
    v.kind = IS_INT
    v.number = number
    return after if after <= end else NULL


cdef inline const uint8_t *read_other(const uint8_t *p, const uint8_t *end, value_t *v) noexcept nogil:
    # All but the short str. `left` bytes are there behind the first one.
    cdef uint8_t t = p[0]
    cdef int64_t left = end - p - 1, head
    if t < 0x80 or t >= 0xE0:
        return number_of(v, <int8_t>t, p + 1, end)
    if t == 0xC2 or t == 0xC3:
        v.kind = IS_BOOL
        v.number = t & 1
        return p + 1
    if t == 0xC4 or t == 0xD9:
        return body_of(v, IS_BIN if t == 0xC4 else IS_STR, p + 2, p[1], end) if left >= 1 else NULL
    if t == 0xC5 or t == 0xDA:
        return body_of(v, IS_BIN if t == 0xC5 else IS_STR, p + 3, big16(p + 1), end) if left >= 2 else NULL
    if t == 0xC6 or t == 0xDB:
        return body_of(v, IS_BIN if t == 0xC6 else IS_STR, p + 5, big32(p + 1), end) if left >= 4 else NULL
    if 0xC7 <= t <= 0xC9:
        head = 1 << (t - 0xC7)
        if left < head + 1 or p[1 + head] != 0xFF:
            return NULL
        return body_of(v, IS_TIME, p + head + 2, p[1] if head == 1 else big16(p + 1) if head == 2 else big32(p + 1), end)
    if 0xD4 <= t <= 0xD8:
        return body_of(v, IS_TIME, p + 2, 1 << (t - 0xD4), end) if left >= 1 and p[1] == 0xFF else NULL
    if t == 0xCC or t == 0xD0:
        return number_of(v, <int64_t>p[1] if t == 0xCC else <int64_t><int8_t>p[1], p + 2, end) if left >= 1 else NULL
    if t == 0xCD or t == 0xD1:
        if left < 2:
            return NULL
        return number_of(v, <int64_t>big16(p + 1) if t == 0xCD else <int64_t><int16_t>big16(p + 1), p + 3, end)
    if t == 0xCE or t == 0xD2:
        if left < 4:
            return NULL
        return number_of(v, <int64_t>big32(p + 1) if t == 0xCE else <int64_t><int32_t>big32(p + 1), p + 5, end)
    if t == 0xCF or t == 0xD3:
        if left < 8:
            return NULL
        # Beyond 63 bits is beyond 32 in any case.
        return number_of(v, <int64_t>(big64(p + 1) & (<uint64_t>-1 if t == 0xD3 else <uint64_t>-1 >> 1) |
                                      (<uint64_t>1 << 62 if t == 0xCF and p[1] & 0x80 else 0)), p + 9, end)
    return NULL


cdef inline const uint8_t *read_value(const uint8_t *p, const uint8_t *end, value_t *v) noexcept nogil:
    # Reads the value at p; where the next one begins, or NULL for what no event has: nil, floats, arrays, maps, other
    # extension types, and values that go on behind the end.
    if p >= end:
        return NULL
    if 0xA0 <= p[0] <= 0xBF:
        return body_of(v, IS_STR, p + 1, p[0] & 31, end)
    return read_other(p, end, v)


cdef inline const uint8_t *read_many(const uint8_t *p, const uint8_t *end, uint8_t few, uint8_t many,
                                     int64_t *count) noexcept nogil:
    # How many follow: up to 15 in the byte itself, or in the two or four behind it.
    if p >= end:
        return NULL
    if p[0] & 0xF0 == few:
        count[0] = p[0] & 15
        return p + 1
    if p[0] == many and end - p >= 3:
        count[0] = big16(p + 1)
        return p + 3
    if p[0] == many + 1 and end - p >= 5:
        count[0] = big32(p + 1)
        return p + 5
    return NULL


cdef inline const uint8_t *read_count(const uint8_t *p, const uint8_t *end, int64_t *count) noexcept nogil:
    # The header of a map.
    return read_many(p, end, 0x80, 0xDE, count)


cdef inline const uint8_t *read_array(const uint8_t *p, const uint8_t *end, int64_t *count) noexcept nogil:
    # The header of an array.
    return read_many(p, end, 0x90, 0xDC, count)


cdef inline bint plain_ascii(uint64_t x) noexcept nogil:
    # Whether eight bytes are all printable ASCII; may say no to some that are.
    return not ((x | (x - <uint64_t>0x2020202020202020) | ((x ^ <uint64_t>0x7F7F7F7F7F7F7F7F) -
                <uint64_t>0x0101010101010101)) & <uint64_t>0x8080808080808080)


cdef inline bint utf8_ok(const uint8_t *p, int64_t n, bint text) noexcept nogil:
    # Whether these bytes are UTF-8; for `text` also whether no control characters, surrogates or noncharacters are there.
    cdef int64_t i = 0, more, k
    cdef uint64_t x
    cdef uint32_t c
    while i < n:
        if n - i >= 8:
            memcpy(&x, p + i, 8)
            if plain_ascii(x) if text else not (x & <uint64_t>0x8080808080808080):
                i += 8
                continue
        c = p[i]
        if c < 0x80:
            if text and (c < 0x20 or c == 0x7F):
                return False
            i += 1
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if n - i <= more:
            return False
        c &= 0x3F >> more
        for k in range(1, more + 1):
            if p[i + k] & 0xC0 != 0x80:
                return False
            c = c << 6 | (p[i + k] & 0x3F)
        if (more == 2 and (c < 0x800 or 0xD800 <= c <= 0xDFFF)) or (more == 3 and (c < 0x10000 or c > 0x10FFFF)):
            return False
        if text and (c < 0xA0 or 0xFDD0 <= c <= 0xFDEF or c & 0xFFFE == 0xFFFE):
            return False
        i += more + 1
    return True


cdef inline bint text_ok(const uint8_t *p, int64_t n) noexcept nogil:
    # The last bytes are looked at as one word too: most texts are short, and ASCII.
    cdef int64_t i = 0
    cdef uint64_t x
    while n - i >= 8:
        memcpy(&x, p + i, 8)
        if not plain_ascii(x):
            return utf8_ok(p, n, True)
        i += 8
    if i < n:
        if n >= 8:
            memcpy(&x, p + n - 8, 8)
        else:
            x = <uint64_t>0x2020202020202020
            memcpy(&x, p, n)
        if not plain_ascii(x):
            return utf8_ok(p, n, True)
    return True


cdef inline int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept nogil:
    # Since 1970, in the Gregorian calendar; years count from March here, so that the leap day is the last.
    cdef int64_t y = year - (month <= 2), era, of_era, of_year
    era = (y if y >= 0 else y - 399) // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


cdef inline int digits(const uint8_t *p, int n) noexcept nogil:
    cdef int i, value = 0
    for i in range(n):
        if p[i] < 48 or p[i] > 57:
            return -1
        value = value * 10 + p[i] - 48
    return value


cdef inline int month_days(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline bint parse_time(const uint8_t *p, int64_t n, int64_t *us) noexcept nogil:
    # An ordinary RFC 3339 time. False: Python must look at it (leap seconds, the first and last year, nonsense).
    cdef int year, month, day, hour, minute, second, fraction = 0, zone = 0, hours, minutes
    cdef int64_t i = 19, k = 0
    if n < 20 or p[4] != 45 or p[7] != 45 or p[10] | 32 != 116 or p[13] != 58 or p[16] != 58:
        return False
    year, month, day = digits(p, 4), digits(p + 5, 2), digits(p + 8, 2)
    hour, minute, second = digits(p + 11, 2), digits(p + 14, 2), digits(p + 17, 2)
    if year < 2 or year > 9998 or month < 1 or month > 12 or day < 1 or day > month_days(year, month):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    if p[19] == 46:
        i = 20
        while i < n and 48 <= p[i] <= 57:
            if k < 6:
                fraction = fraction * 10 + p[i] - 48
                k += 1
            i += 1
        if i == 20:
            return False
        while k < 6:
            fraction *= 10
            k += 1
    if i == n - 1 and p[i] | 32 == 122:
        zone = 0
    elif i == n - 6 and (p[i] == 43 or p[i] == 45) and p[i + 3] == 58:
        hours, minutes = digits(p + i + 1, 2), digits(p + i + 4, 2)
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
            return False
        zone = (hours * 60 + minutes) * (-1 if p[i] == 45 else 1)
    else:
        return False
    us[0] = ((days_of(year, month, day) * 1440 + hour * 60 + minute - zone) * 60 + second) * 1000000 + fraction
    return True


cdef inline bint stamp_ns(const uint8_t *p, int64_t size, int64_t *seconds, int64_t *ns) noexcept nogil:
    # A MessagePack timestamp of the years 1 to 9999.
    cdef uint64_t x
    if size == 4:
        seconds[0] = big32(p)
        ns[0] = 0
    elif size == 8:
        x = big64(p)
        seconds[0] = <int64_t>(x & ((<uint64_t>1 << 34) - 1))
        ns[0] = <int64_t>(x >> 34)
    elif size == 12:
        ns[0] = big32(p)
        seconds[0] = <int64_t>big64(p + 4)
    else:
        return False
    return ns[0] <= 999999999 and -<int64_t>62135596800 <= seconds[0] <= <int64_t>253402300799


cdef inline bint stamp_us(const uint8_t *p, int64_t size, int64_t *us) noexcept nogil:
    cdef int64_t seconds, ns
    if not stamp_ns(p, size, &seconds, &ns):
        return False
    # Rounded as the decoder does.
    us[0] = seconds * 1000000 + (ns + 500) // 1000
    return us[0] <= <int64_t>253402300799999999


cdef inline void put_digits(uint8_t *out, int64_t value, int n) noexcept nogil:
    cdef int i
    for i in range(n - 1, -1, -1):
        out[i] = <uint8_t>(48 + value % 10)
        value //= 10


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    return a // b - (a % b < 0)


cdef inline int64_t write_iso(uint8_t *out, int64_t us) noexcept nogil:
    # As `datetime.isoformat() + "Z"`: 2018-04-05T17:31:00Z, with six digits of a second when they are not zero.
    cdef int64_t day = floor_div(us, <int64_t>86400000000), rest = us - day * <int64_t>86400000000
    cdef int64_t z = day + 719468, era = floor_div(z, 146097), of_era = z - era * 146097, year, of_year, m, size = 19
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    m = (5 * of_year + 2) // 153
    year += era * 400 + (m >= 10)
    put_digits(out, year, 4)
    put_digits(out + 5, m + 3 if m < 10 else m - 9, 2)
    put_digits(out + 8, of_year - (153 * m + 2) // 5 + 1, 2)
    put_digits(out + 11, rest // <int64_t>3600000000, 2)
    put_digits(out + 14, rest // 60000000 % 60, 2)
    put_digits(out + 17, rest // 1000000 % 60, 2)
    out[4] = out[7] = 45
    out[10] = 84
    out[13] = out[16] = 58
    if rest % 1000000:
        out[19] = 46
        put_digits(out + 20, rest % 1000000, 6)
        size = 26
    out[size] = 90
    return size + 1


cdef inline int64_t write_int(uint8_t *out, int64_t value) noexcept nogil:
    cdef int64_t left = value if value >= 0 else -value, size = 1
    cdef bint negative = value < 0
    while left >= 10:
        left //= 10
        size += 1
    if negative:
        out[0] = 45
    put_digits(out + negative, value if value >= 0 else -value, <int>size)
    return size + negative


cdef inline int64_t base64_size(int64_t n) noexcept nogil:
    return (n + 2) // 3 * 4


cdef inline void write_base64(uint8_t *out, const uint8_t *p, int64_t n) noexcept nogil:
    cdef const char *digit = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef int64_t i = 0
    cdef uint32_t x
    while i < n:
        x = <uint32_t>p[i] << 16
        if i + 1 < n:
            x |= <uint32_t>p[i + 1] << 8
        if i + 2 < n:
            x |= p[i + 2]
        out[0] = digit[x >> 18]
        out[1] = digit[x >> 12 & 63]
        out[2] = digit[x >> 6 & 63] if i + 1 < n else 61
        out[3] = digit[x & 63] if i + 2 < n else 61
        out += 4
        i += 3
