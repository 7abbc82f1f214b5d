"""Where the events of a batch stand, as Place.java reads it, for thousands of topics at once.

Of a topic with a few small events these are told themselves: whoever plans has the file open, and to read them there
takes a tenth of what it takes a task to open the file.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.log_record cimport HEADER, padded

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_CLOEXEC
    int c_open "open"(const char *path, int flags)

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_pread "pread"(int fd, void *into, size_t size, int64_t position)

cdef enum:
    NUMBERS = 6             # of a place: start, until, position, first, shift, time
    FIXED = 4 + NUMBERS * 8 + 4
    CARRIED = 4 << 10       # bytes of records of a range that travel with its place
    READ = 16 << 10         # and of those that are read to find them
    FIRST_READ = 1 << 10
    NOT_OPEN = -1
    NO_FILE = -2            # or not the one that was told


cdef class Files:
    """The files that are open to read events from: no more than so many, and none for long that nobody reads."""

    cdef int64_t limit
    cdef readonly int64_t count

    def __init__(self, int64_t limit):
        self.limit = limit

    def close_idle(self, dict known not None) -> None:
        """Closes those of spots that were not read since the last call: they may have been removed."""
        cdef Spot spot
        for one in known.values():
            spot = <Spot>one
            if not spot.used:
                spot.close()
            spot.used = False


cdef class Spot:
    """Where a file has a record of a topic; what follows it may be there too.

    `named` has topic, path and what the file begins with, each behind its length; it can be relied on for a while.
    """

    cdef readonly int64_t position, first, shift, time_ns
    cdef readonly bytes named
    cdef readonly double good_until
    cdef int fd
    cdef Files files
    cdef int64_t typical    # bytes of a record
    cdef bint used
    cdef bint missing       # what was to be read last is not there

    def __init__(self, int64_t position, int64_t first, int64_t shift, int64_t time_ns, bytes named not None,
                 double good_until=0.0):
        self.position, self.first, self.shift, self.time_ns = position, first, shift, time_ns
        self.named = named
        self.good_until = good_until

    def __cinit__(self):
        self.fd = NOT_OPEN

    def __dealloc__(self):
        self.close()

    cdef void close(self) noexcept:
        if self.fd >= 0:
            c_close(self.fd)
            self.files.count -= 1
            self.fd = NOT_OPEN

    cdef const char *part(self, int number, int32_t *size) noexcept:
        # The topic, the path or the head.
        cdef const char *at = PyBytes_AS_STRING(self.named)
        memcpy(size, at, 4)
        while number > 0:
            at += 4 + size[0]
            memcpy(size, at, 4)
            number -= 1
        return at + 4

    cdef bint open(self, Files files):
        # The file, if it is the one that was told.
        cdef int32_t size
        cdef const char *path = self.part(1, &size)
        cdef bytes name = path[:size]
        cdef const char *head
        cdef char found[256]
        if self.fd == NOT_OPEN and size > 0 and files.count < files.limit:
            head = self.part(2, &size)
            self.fd = c_open(PyBytes_AS_STRING(name), O_RDONLY | O_CLOEXEC)
            if self.fd >= 0:
                self.files = files
                files.count += 1
                if size > <int32_t>sizeof(found) or c_pread(self.fd, found, size, 0) != size or memcmp(found, head, size):
                    self.close()
            if self.fd < 0:
                self.fd = NO_FILE
        return self.fd >= 0

    cdef bytes carry(self, Files files, int64_t start, int64_t until):
        """The records of these offsets, as they stand in the file; None where they are more than a few, or not all there.

        Their sums are for who reads them.
        """
        cdef char read[READ]
        cdef int64_t offset = self.first, at = 0, begin = 0, size, there, found
        cdef uint32_t length
        self.missing = False
        if self.shift or self.time_ns >= 0 or not self.open(files):
            return None
        size = (until - offset) * (self.typical + (self.typical >> 2)) + 64 if self.typical else FIRST_READ
        size = min(size, READ)
        there = c_pread(self.fd, read, size, self.position)
        while offset < until:
            if there - at >= HEADER:
                memcpy(&length, read + at, 4)
                memcpy(&found, read + at + 8, 8)
                if length < HEADER or found != offset:
                    self.missing = True
                    return None
            if there - at < HEADER or padded(length) > there - at:
                if there < size or size == READ:
                    self.missing = there < size
                    return None
                size = READ
                there = c_pread(self.fd, read, size, self.position)
                continue
            if offset == start:
                begin = at
            at += padded(length)
            offset += 1
        self.typical = at // (until - self.first)
        self.position += at
        self.first = until
        self.used = True
        return PyBytes_FromStringAndSize(read + begin, at - begin) if at - begin <= CARRIED else None


def told(ranges not None, dict known not None, double now, int64_t near, list pieces not None, look, Files files,
         int64_t room) -> int:
    """Adds where the events of each range stand, as Place.java reads it; of how many that was known.

    `known` has spots by topic: a range that begins behind one, and not far, stands there. A few of its events are added
    themselves as long as all of these are no more than `room` bytes. `look(number, range)` deals with the others.
    """
    cdef int32_t number = 0
    cdef int64_t events = 0, start, until, position, first
    cdef PyObject *kept
    cdef Spot spot
    cdef bytes records
    for one in ranges:
        start, until = (<tuple>one)[1], (<tuple>one)[2]
        kept = PyDict_GetItem(known, (<tuple>one)[0])
        if kept != NULL:
            spot = <Spot>kept
            position, first = spot.position, spot.first
            if until - near <= first <= start and now < spot.good_until:
                records = spot.carry(files, start, until) if room > 0 else None
                if records is not None:
                    pieces.append(_carried(number, start, until, spot, records))
                    room -= PyBytes_GET_SIZE(records)
                elif spot.missing:
                    kept = NULL
                else:
                    pieces.append(_placed(number, start, until, spot, position, first))
                    pieces.append(spot.named)
                    pieces.append(NO_RECORDS)
            else:
                kept = NULL
        if kept == NULL:
            look(number, one)
        else:
            events += until - start
        number += 1
    return events


NO_RECORDS = bytes(4)


cdef bytes _placed(int32_t number, int64_t start, int64_t until, Spot spot, int64_t position, int64_t first):
    cdef char packed[FIXED]
    cdef int32_t size = PyBytes_GET_SIZE(spot.named)
    _numbers(packed, number, start, until, position, first, spot.shift, spot.time_ns, size)
    return PyBytes_FromStringAndSize(packed, FIXED)


cdef bytes _carried(int32_t number, int64_t start, int64_t until, Spot spot, bytes records):
    # No path, and nothing that a file would begin with.
    cdef int32_t named, size = PyBytes_GET_SIZE(records)
    cdef bytes made
    cdef char *at
    spot.part(0, &named)
    named += 4
    made = PyBytes_FromStringAndSize(NULL, FIXED + named + 8 + 4 + size)
    at = PyBytes_AS_STRING(made)
    _numbers(at, number, start, until, 0, start, 0, -1, named + 8)
    at += FIXED
    memcpy(at, PyBytes_AS_STRING(spot.named), named)
    memset(at + named, 0, 8)
    at += named + 8
    memcpy(at, &size, 4)
    memcpy(at + 4, PyBytes_AS_STRING(records), size)
    return made


cdef void _numbers(char *at, int32_t number, int64_t start, int64_t until, int64_t position, int64_t first,
                   int64_t shift, int64_t time_ns, int32_t size) noexcept:
    cdef int64_t numbers[NUMBERS]
    numbers[0], numbers[1], numbers[2] = start, until, position
    numbers[3], numbers[4], numbers[5] = first, shift, time_ns
    memcpy(at, &number, 4)
    memcpy(at + 4, numbers, NUMBERS * 8)
    memcpy(at + 4 + NUMBERS * 8, &size, 4)
