"""Where the events of a batch stand, as Place.java reads it, for thousands of topics at once.

Of a topic with a few small events these are told themselves: whoever plans has the file open, and to read them there
takes a tenth of what it takes a task to open the file.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.mman cimport munmap

from echomesh.native.memory_file cimport c_close, memory_file
from echomesh.native.spark_maps cimport mapped, unmap, window_t
from echomesh.native.spark_reads cimport c_pread, copy, job_t, opened, read_all, walk

cdef enum:
    NUMBERS = 6             # of a place: start, until, position, first, shift, time
    FIXED = 4 + NUMBERS * 8 + 4
    CARRIED = 4 << 10       # bytes of records of a range that travel with its place
    READ = 16 << 10         # and of those that are read to find them
    FIRST_READ = 1 << 10
    FEW = 64                # ranges: to read them takes no time
    NOT_OPEN = -1
    NO_FILE = -2            # or not the one that was told
    UNTRIED = -2            # -1: there can't be a file in memory


cdef class Files:
    """The files that are open to read events from: no more than so many, and none for long that nobody reads."""

    cdef int64_t limit
    cdef readonly int64_t count
    cdef char *memory       # to read into, for one batch after the other: fresh pages cost as much as reading
    cdef int64_t size
    cdef int fd             # of the file in memory that this is, if it is one
    cdef char *text         # what is told of carried records, one behind the other
    cdef int64_t told, most

    def __init__(self, int64_t limit):
        self.limit = limit

    def __cinit__(self):
        self.fd = UNTRIED

    def __dealloc__(self):
        self.free_room()
        free(self.text)

    cdef void free_room(self) noexcept:
        if self.fd >= 0:
            munmap(self.memory, self.size)
            c_close(self.fd)
            self.fd = UNTRIED
        else:
            free(self.memory)
        self.memory, self.size = NULL, 0

    cdef char *room(self, int64_t size, bint many) except NULL:
        # Of so many bytes; those of many files are copied into a file in memory, if there can be one.
        cdef char *made = NULL
        cdef int fd = self.fd
        if size > self.size or (many and fd == UNTRIED):
            if many or fd >= 0:
                fd = memory_file("echomesh-spark", size, &made)
            if made == NULL and size > self.size:
                made = <char *>malloc(size)
                if made == NULL:
                    raise MemoryError
            if made != NULL:
                self.free_room()
                self.memory, self.size = made, size
            self.fd = fd
        return self.memory

    cdef char *next(self, int64_t size) except NULL:
        cdef char *larger
        if self.told + size > self.most:
            larger = <char *>realloc(self.text, 2 * self.most + size)
            if larger == NULL:
                raise MemoryError
            self.text = larger
            self.most = 2 * self.most + size
        self.told += size
        return self.text + self.told - size

    cdef int flush(self, list pieces) except -1:
        if self.told:
            pieces.append(PyBytes_FromStringAndSize(self.text, self.told))
        self.told = 0
        return 0

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
    cdef window_t window
    cdef Files files
    cdef int64_t typical    # bytes of a record
    cdef bint used

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
            unmap(&self.window)
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
        cdef const char *path
        cdef const char *head
        cdef char found[256]
        cdef bytes name
        if self.fd != NOT_OPEN:
            return self.fd >= 0
        path = self.part(1, &size)
        if size > 0 and files.count < files.limit:
            name = path[:size]
            head = self.part(2, &size)
            self.fd = opened(PyBytes_AS_STRING(name))
            if self.fd >= 0:
                self.files = files
                files.count += 1
                if size > <int32_t>sizeof(found) or c_pread(self.fd, found, size, 0) != size or memcmp(found, head, size):
                    self.close()
            if self.fd < 0:
                self.fd = NO_FILE
        return self.fd >= 0

    cdef bint can_read(self, Files files):
        return not self.shift and self.time_ns < 0 and self.open(files)

    cdef int64_t guess(self, int64_t until) noexcept:
        # Of the bytes up to there.
        return (until - self.first) * (self.typical + (self.typical >> 2)) + 64

    cdef job_t job(self, int64_t start, int64_t until, int64_t size, char *into) noexcept:
        return job_t(self.fd, NULL, min(size, READ), self.position, self.first, start, until, into, 0, 0)

    cdef void turn(self, const job_t *done) noexcept:
        # Goes on behind what was read.
        self.typical = done.end // (done.until - done.first)
        self.position += done.end
        self.first = done.until
        self.used = True

    cdef int carry(self, job_t *job, Files files, int64_t start, int64_t until, char *into):
        """Reads the records of these offsets; CARRY, or PLACE where they are more than a few, or LOOK if others are there.

        Their sums are for who uses them.
        """
        cdef int64_t there
        cdef bint others
        if not self.can_read(files):
            return PLACE
        job[0] = self.job(start, until, self.guess(until) if self.typical else FIRST_READ, into)
        while True:
            there = c_pread(job.fd, into, job.size, job.position)
            others = walk(job, there)
            if job.end:
                self.turn(job)
                return CARRY if job.end - job.begin <= CARRIED else PLACE
            if others or there < job.size:
                return LOOK
            if job.size == READ:
                return PLACE
            job.size = READ


cdef enum:
    CARRY
    PLACE
    LOOK


cdef class Batch:
    """The ranges of a batch: what is known of them is read first, all at once, and then told one by one."""

    cdef job_t *jobs
    cdef int64_t count, next

    def __dealloc__(self):
        free(self.jobs)

    cdef int read(self, ranges, dict known, double now, int64_t near, Files files, int64_t room) except -1:
        cdef int64_t start, until, size, used = 0, copied = 0
        cdef bint many = len(ranges) > FEW
        cdef char *memory
        cdef char *into
        cdef char *at
        cdef Spot spot
        if not files.limit or room <= 0:
            return 0
        memory = files.room(room, many)
        self.jobs = <job_t *>malloc((len(ranges) + 1) * sizeof(job_t))
        if self.jobs == NULL:
            raise MemoryError
        for one in ranges:
            start, until = (<tuple>one)[1], (<tuple>one)[2]
            spot = spot_for((<tuple>one)[0], start, until, known, now, near)
            if spot is None or not spot.typical or not spot.can_read(files):
                continue
            size = spot.guess(until)
            if size > CARRIED or used + size > room:
                continue
            at = mapped(&spot.window, spot.fd, spot.position, size) if many and files.fd >= 0 else NULL
            used += size
            if at != NULL:
                # Those that are copied stand together, in front.
                into = memory + copied
                copied += size
            else:
                into = memory + room - (used - copied)
            self.jobs[self.count] = spot.job(start, until, size, into)
            self.jobs[self.count].mapped = at
            self.count += 1
        with nogil:
            if copied:
                copy(self.jobs, self.count, files.fd, memory)
            read_all(self.jobs, self.count)
        return 0

    cdef job_t *done(self, Spot spot, int64_t start, int64_t until) noexcept:
        # What was read of the next range, if it was.
        cdef job_t *job = &self.jobs[self.next]
        if self.next == self.count or job.fd != spot.fd or job.start != start or job.until != until:
            return NULL
        self.next += 1
        return job if job.end and job.first == spot.first else NULL


cdef Spot spot_for(str topic, int64_t start, int64_t until, dict known, double now, int64_t near):
    # The one that a range begins behind, and not far.
    cdef PyObject *kept = PyDict_GetItem(known, topic)
    cdef Spot spot
    if kept == NULL:
        return None
    spot = <Spot>kept
    return spot if until - near <= spot.first <= start and now < spot.good_until else None


def told(ranges not None, dict known not None, double now, int64_t near, list pieces not None, look, Files files,
         int64_t room, double renewed) -> int:
    """Adds where the events of each range stand, as Place.java reads it; of how many that was known.

    `known` has spots by topic: a range that begins behind one, and not far, stands there. A few of its events are added
    themselves as long as all of these are no more than `room` bytes, and their spots are good for `renewed` seconds more:
    they were there. `look(number, range)` deals with the others.
    """
    cdef char memory[READ]
    cdef job_t own
    cdef job_t *job
    cdef int32_t number = -1
    cdef int64_t events = 0, start, until, position, first
    cdef int state
    cdef Spot spot
    cdef Batch batch = Batch()
    batch.read(ranges, known, now, near, files, room)
    files.told = 0
    for one in ranges:
        number += 1
        start, until = (<tuple>one)[1], (<tuple>one)[2]
        spot = spot_for((<tuple>one)[0], start, until, known, now, near)
        if spot is None:
            files.flush(pieces)
            look(number, one)
            continue
        position, first = spot.position, spot.first
        job = batch.done(spot, start, until)
        if job != NULL:
            spot.turn(job)
            state = CARRY if job.end - job.begin <= CARRIED else PLACE
        else:
            job = &own
            state = spot.carry(job, files, start, until, memory) if room > 0 else PLACE
        if state == CARRY:
            _carry(number, spot, job, files)
            room -= job.end - job.begin
            spot.good_until = max(spot.good_until, now + renewed)
            events += until - start
            continue
        files.flush(pieces)
        if state == LOOK:
            look(number, one)
        else:
            pieces.append(_placed(number, start, until, spot, position, first))
            pieces.append(spot.named)
            pieces.append(NO_RECORDS)
            events += until - start
    files.flush(pieces)
    return events


NO_RECORDS = bytes(4)


cdef bytes _placed(int32_t number, int64_t start, int64_t until, Spot spot, int64_t position, int64_t first):
    cdef char packed[FIXED]
    cdef int32_t size = PyBytes_GET_SIZE(spot.named)
    _numbers(packed, number, start, until, position, first, spot.shift, spot.time_ns, size)
    return PyBytes_FromStringAndSize(packed, FIXED)


cdef int _carry(int32_t number, Spot spot, const job_t *job, Files files) except -1:
    # No path, and nothing that a file would begin with.
    cdef int32_t named, size = job.end - job.begin
    cdef char *at
    spot.part(0, &named)
    named += 4
    at = files.next(FIXED + named + 8 + 4 + size)
    _numbers(at, number, job.start, job.until, 0, job.start, 0, -1, named + 8)
    at += FIXED
    memcpy(at, PyBytes_AS_STRING(spot.named), named)
    memset(at + named, 0, 8)
    at += named + 8
    memcpy(at, &size, 4)
    memcpy(at + 4, job.into + job.begin, size)
    return 0


cdef void _numbers(char *at, int32_t number, int64_t start, int64_t until, int64_t position, int64_t first,
                   int64_t shift, int64_t time_ns, int32_t size) noexcept:
    cdef int64_t numbers[NUMBERS]
    numbers[0], numbers[1], numbers[2] = start, until, position
    numbers[3], numbers[4], numbers[5] = first, shift, time_ns
    memcpy(at, &number, 4)
    memcpy(at + 4, numbers, NUMBERS * 8)
    memcpy(at + 4 + NUMBERS * 8, &size, 4)
