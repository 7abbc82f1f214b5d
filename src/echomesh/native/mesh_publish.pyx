"""The hot path of a server: publishes as most of them are, from bytes into the log, and their answers.

A request that has anything unusual (an unknown property, a topic that was not asked for before, an event with extensions)
is left to Python, which knows all the rules; what passes here would pass there too.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from echomesh.errors import LogError

from echomesh.native.big_endian cimport put_big_endian
from echomesh.native.log_answers cimport DONE, PENDING, Answer
from echomesh.native.log_appends cimport Appends
from echomesh.native.log_msgpack cimport IS_INT, IS_STR, read_count, read_value, utf8_ok, value_t
from echomesh.native.mesh_event cimport event_at, named, same

cdef enum:
    LONGEST = 1 << 16       # of a frame that is taken here; whether a longer one is allowed, Python knows
    AHEAD = 8               # requests that are read before the first of them is appended

# Magic value, version and command of a publish, as every encoder writes them.
cdef bytes HEAD = b"\x98\xa9EventMesh\xa40000\x0e"
# Its answer up to the seq: command 15, status 0, description, no error.
cdef bytes ANSWER = b"\x98\xa9EventMesh\xa40000\x0f\x00\xa7success\xa0"
cdef bytes OFFSET = b"\x81\xa6Offset"


cdef struct request_t:
    value_t seq, topic
    const uint8_t *event
    int64_t event_size
    Py_ssize_t end          # where the next one begins
    bint named              # whether the log was asked already what it knows the event by,
    uint64_t hash[2]        # which is this


cdef const uint8_t *skip_short(const uint8_t *p, const uint8_t *end, int kind) noexcept nogil:
    # Over the status, its description or the error of a request, which mean nothing: nil, or of this kind.
    cdef value_t v
    if p < end and p[0] == 0xC0:
        return p + 1
    p = read_value(p, end, &v)
    if p == NULL or v.kind != kind or (kind == IS_STR and not utf8_ok(v.body, v.size, False)):
        return NULL
    return p


cdef class Lane:
    """One connection whose session publishes, without a limit or with one.

    `append(topic, event, environment=...)` is the log's; `may` has the topics that the session was allowed before;
    `in_flight` is the connection's, by seq.
    """

    cdef object connection, append, environment, rate
    cdef Appends log                # whose `append` it is, if it is compiled
    cdef bytes client_id, session_id
    cdef dict may, in_flight
    cdef readonly int64_t in_flight_bytes
    cdef Publishes queue
    cdef bytes last_name
    cdef object last_topic
    cdef uint8_t *out
    cdef int64_t used, room

    def __init__(self, connection, Publishes queue not None, append, str environment not None, str client_id not None,
                 str session_id not None, dict may not None, dict in_flight not None, rate=None):
        self.connection = connection
        self.queue = queue
        self.append = append
        owner = getattr(append, "__self__", None)
        self.log = owner if isinstance(owner, Appends) else None
        self.environment = environment
        self.client_id = client_id.encode()
        self.session_id = session_id.encode()
        self.may = may
        self.in_flight = in_flight
        self.rate = rate
        self.last_name = b""

    def __dealloc__(self):
        free(self.out)

    cdef bint read(self, const uint8_t *p, const uint8_t *end, request_t *r) except -1:
        # Whether this is a publish of this session, with nothing unusual.
        cdef value_t name, v
        cdef int64_t count = 0, i
        cdef int seen = 0
        if end - p < PyBytes_GET_SIZE(HEAD) or memcmp(p, PyBytes_AS_STRING(HEAD), PyBytes_GET_SIZE(HEAD)) != 0:
            return False
        p += PyBytes_GET_SIZE(HEAD)
        for i in range(3):
            p = skip_short(p, end, IS_INT if i == 0 else IS_STR)
            if p == NULL:
                return False
        p = read_value(p, end, &r.seq)
        if p == NULL or r.seq.kind != IS_STR or r.seq.size == 0 or r.seq.size > 64:
            return False
        p = read_count(p, end, &count)
        if p == NULL or count > 8:
            return False
        for i in range(count):
            p = read_value(p, end, &name)
            if p == NULL or name.kind != IS_STR:
                return False
            if named(&name, "CloudEvent", 10):
                r.event = p
                p = event_at(p, end, False)
                if p == NULL:
                    return False
                r.event_size = p - r.event
                seen |= 1
                continue
            if p < end and p[0] == 0xC0 and (named(&name, "Urn", 3) or named(&name, "Port", 4) or
                                             named(&name, "Environment", 11)):
                p += 1
                continue
            if p < end and p[0] == 0 and named(&name, "Hops", 4):
                p += 1
                continue
            p = read_value(p, end, &v)
            if p == NULL or v.kind != IS_STR:
                return False
            if named(&name, "ClientId", 8):
                if not same(&v, self.client_id):
                    return False
                seen |= 2
            elif named(&name, "SessionId", 9):
                if not same(&v, self.session_id):
                    return False
                seen |= 4
            elif named(&name, "Topic", 5):
                r.topic = v
                seen |= 8
            else:
                return False
        return seen == 15 and p == end

    cdef object find_topic(self, value_t *v):
        # The topic in its one spelling, or None for one that was not asked for before.
        cdef PyObject *found
        if same(v, self.last_name):
            return self.last_topic
        name = PyUnicode_DecodeUTF8(<char *>v.body, v.size, NULL)
        found = PyDict_GetItem(self.may, name)
        if found == NULL:
            return None
        self.last_name = PyBytes_FromStringAndSize(<const char *>v.body, v.size)
        self.last_topic = <object>found
        return self.last_topic

    def forget(self) -> None:
        """The session's rights changed."""
        self.last_name = b""
        self.last_topic = None

    cdef bint read_whole(self, const uint8_t *p, const uint8_t *end, request_t *r) except -1:
        r.named = False
        return (self.read(p, end, r) and utf8_ok(r.topic.body, r.topic.size, False)
                and utf8_ok(r.seq.body, r.seq.size, False))

    cdef bint enter(self, request_t *r, double now, int64_t time_ns) except -1:
        topic = self.find_topic(&r.topic)
        if topic is None:
            return False
        seq = PyUnicode_DecodeUTF8(<char *>r.seq.body, r.seq.size, NULL)
        if seq in self.in_flight:
            return False
        if self.rate is not None and self.rate.take(now) > 0:
            return False
        if self.log is not None:
            answer = self.log.append_at(
                topic, <const char *>r.event, r.event_size, self.environment, r.hash if r.named else NULL, time_ns)
        else:
            event = PyBytes_FromStringAndSize(<const char *>r.event, r.event_size)
            answer = self.append(topic, event, environment=self.environment)
        self.in_flight[seq] = 0
        self.in_flight_bytes += r.event_size
        self.queue.push(answer, self, seq, topic, r.event_size)
        return True

    def take(self, bytes payload not None, double now) -> bool:
        """Appends the event of this request; False for anything that Python has to look at."""
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(payload)
        cdef request_t r
        return self.read_whole(p, p + PyBytes_GET_SIZE(payload), &r) and self.enter(&r, now, self.time_ns())

    cdef int64_t time_ns(self) except? -1:
        return self.log.now() if self.log is not None else 0

    cdef int read_ahead(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t until,
                        request_t *requests) except -1:
        # The next requests; how many there are. What the log will look up for them is on its way from memory then.
        cdef int count = 0
        cdef Py_ssize_t length
        cdef request_t *r
        while count < AHEAD and end - at >= 4 and at < until:
            length = <Py_ssize_t>p[at] << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]
            r = &requests[count]
            if length > LONGEST or length > end - at - 4 or not self.read_whole(p + at + 4, p + at + 4 + length, r):
                break
            topic = self.find_topic(&r.topic) if self.log is not None else None
            if topic is not None:
                r.named = self.log.foresee(topic, <const char *>r.event, r.event_size, self.environment, r.hash)
            at += 4 + length
            r.end = at
            count += 1
        return count

    def take_frames(self, const uint8_t[::1] data not None, Py_ssize_t at, double now, Py_ssize_t most) -> int:
        """Takes the requests from `at` on, and says where it stopped: at one that Python has to look at, at one that is
        not whole, at the end, or with `most` bytes or more.
        """
        cdef const uint8_t *p = &data[0] if data.shape[0] else NULL
        cdef Py_ssize_t end = data.shape[0], until
        cdef request_t requests[AHEAD]
        cdef int count, i
        cdef int64_t time_ns
        if not 0 <= at <= end:
            raise IndexError(at)
        until = at + min(most, end - at)
        time_ns = self.time_ns()
        while True:
            count = self.read_ahead(p, at, end, until, requests)
            for i in range(count):
                try:
                    if not self.enter(&requests[i], now, time_ns):
                        return at
                except LogError:
                    return at   # the long way says what is wrong
                at = requests[i].end
            if count < AHEAD:
                return at

    cdef int grow(self, int64_t more) except -1:
        cdef uint8_t *larger
        if self.used + more > self.room:
            self.room = max(2 * self.room, self.used + more, 4096)
            larger = <uint8_t *>realloc(self.out, self.room)
            if larger == NULL:
                raise MemoryError
            self.out = larger
        return 0

    cdef int reply(self, str seq, int64_t offset) except -1:
        # The frame of an answer, behind those that are there.
        cdef Py_ssize_t size
        cdef const char *text = PyUnicode_AsUTF8AndSize(seq, &size)
        cdef int64_t start = self.used, length
        cdef uint8_t *p
        self.grow(4 + PyBytes_GET_SIZE(ANSWER) + 2 + size + PyBytes_GET_SIZE(OFFSET) + 9)
        p = self.out + start + 4
        memcpy(p, PyBytes_AS_STRING(ANSWER), PyBytes_GET_SIZE(ANSWER))
        p += PyBytes_GET_SIZE(ANSWER)
        if size < 32:
            p[0] = <uint8_t>(0xA0 | size)
            p += 1
        else:
            p[0] = 0xD9
            p[1] = <uint8_t>size
            p += 2
        memcpy(p, text, size)
        p += size
        memcpy(p, PyBytes_AS_STRING(OFFSET), PyBytes_GET_SIZE(OFFSET))
        p += PyBytes_GET_SIZE(OFFSET)
        if offset < 0x80:
            p[0] = <uint8_t>offset
            p += 1
        elif offset < 0x100000000:
            p[0] = 0xCE
            put_big_endian(p + 1, offset, 4)
            p += 5
        else:
            p[0] = 0xCF
            put_big_endian(p + 1, offset, 8)
            p += 9
        length = p - self.out - start - 4
        put_big_endian(self.out + start, length, 4)
        self.used = p - self.out
        return 0

    cdef bytes take_out(self):
        cdef bytes made = PyBytes_FromStringAndSize(<char *>self.out, self.used)
        self.used = 0
        return made


@cython.final
@cython.freelist(1024)
cdef class Waiting:
    # One publish that waits for the log.
    cdef object pending, connection, seq, environment, topic
    cdef Lane lane
    cdef int64_t size
    cdef Waiting behind


cdef class Publishes:
    """Publishes of all connections that wait for the log, in its order."""

    cdef Waiting first, last
    cdef int64_t count
    cdef readonly int64_t settled   # how many were answered so far

    def __len__(self) -> int:
        return self.count

    cdef int push(self, pending, Lane lane, seq, topic, int64_t size) except -1:
        cdef Waiting waiting = Waiting.__new__(Waiting)
        waiting.pending = pending
        waiting.lane = lane
        waiting.connection = lane.connection
        waiting.seq = seq
        waiting.environment = lane.environment
        waiting.topic = topic
        waiting.size = size
        self.enqueue(waiting)
        return 0

    cdef void enqueue(self, Waiting waiting):
        if self.last is None:
            self.first = waiting
        else:
            self.last.behind = waiting
        self.last = waiting
        self.count += 1

    def add(self, pending, connection, str seq, str environment, str topic) -> None:
        """One that did not come through a lane."""
        cdef Waiting waiting = Waiting.__new__(Waiting)
        waiting.pending = pending
        waiting.connection = connection
        waiting.seq = seq
        waiting.environment = environment
        waiting.topic = topic
        self.enqueue(waiting)

    @property
    def answerable(self) -> bool:
        """Whether the first of them is on disk, or failed."""
        return self.first is not None and self.first.pending.done()

    def settle(self, answer) -> list:
        """Answers all that are on disk; the (environment, topic) that grew.

        Those of lanes are answered here; for all others, and for those that failed, `answer(pending, connection, seq)` is
        called.
        """
        cdef Waiting waiting
        cdef Lane lane
        cdef Answer known
        cdef list grown = []
        cdef list lanes = []
        cdef object environment = None, topic = None
        while self.first is not None:
            waiting = self.first
            known = waiting.pending if type(waiting.pending) is Answer else None
            if known.state == PENDING if known is not None else not waiting.pending.done():
                break
            self.first = waiting.behind
            waiting.behind = None
            if self.first is None:
                self.last = None
            self.count -= 1
            self.settled += 1
            lane = waiting.lane
            if lane is not None:
                lane.in_flight_bytes -= waiting.size
            if lane is not None and known is not None and known.state == DONE and known.offsets is None:
                if lane.in_flight.pop(waiting.seq, None) is not None:
                    if lane.used == 0:
                        lanes.append(lane)
                    lane.reply(waiting.seq, known.offset)
            else:
                answer(waiting.pending, waiting.connection, waiting.seq)
            if waiting.topic is not topic or waiting.environment is not environment:
                topic, environment = waiting.topic, waiting.environment
                if (environment, topic) not in grown:
                    grown.append((environment, topic))
        for lane in lanes:
            lane.connection.write(lane.take_out())
        return grown
