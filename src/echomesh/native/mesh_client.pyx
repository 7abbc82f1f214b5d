"""The hot path of a client: its publishes as frames, and their answers.

An answer that has anything unusual is left to Python, which knows all forms; what is understood here would be understood
the same there.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from echomesh.errors import FrameTooLarge, SessionBusy
from echomesh.native.big_endian cimport big_endian, put_big_endian
from echomesh.native.log_answers cimport DONE, PENDING, Answer

SEQ_DIGITS = 12

cdef enum:
    DIGITS = 12
    SEQ = 0xA0 | DIGITS         # a str of so many bytes
    KEPT_ROOM = 1 << 20
    MOST_TOPICS = 4096          # that are remembered

# A publish up to its seq: command 14, status 0, no description, no error.
cdef bytes REQUEST = b"\x98\xa9EventMesh\xa40000\x0e\x00\xa0\xa0"
# Its answer: command 15, status 0, and what our server says to that.
cdef bytes ANSWER = b"\x98\xa9EventMesh\xa40000\x0f\x00\xa7success\xa0"
cdef bytes OFFSET = b"\x81\xa6Offset"

cdef const uint8_t *REQUEST_AT = <const uint8_t *>PyBytes_AS_STRING(REQUEST)
cdef const uint8_t *ANSWER_AT = <const uint8_t *>PyBytes_AS_STRING(ANSWER)
cdef const uint8_t *OFFSET_AT = <const uint8_t *>PyBytes_AS_STRING(OFFSET)
cdef int64_t REQUEST_SIZE = PyBytes_GET_SIZE(REQUEST)
cdef int64_t ANSWER_SIZE = PyBytes_GET_SIZE(ANSWER)
cdef int64_t OFFSET_SIZE = PyBytes_GET_SIZE(OFFSET)
cdef int64_t SHORTEST = ANSWER_SIZE + 1 + DIGITS + OFFSET_SIZE + 1


@cython.final
@cython.freelist(4096)
cdef class Flying:
    # One publish that is not answered yet.
    cdef object token, topic, server
    cdef bytes event


cdef int64_t read_number(const uint8_t *p) noexcept nogil:
    # The number of a seq; -1 for what is none.
    cdef int64_t value = 0
    cdef int i
    cdef uint8_t digit
    for i in range(DIGITS):
        digit = p[i]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return -1
        value = value << 4 | digit
    return value


cdef bint read_offset(const uint8_t *p, int64_t size, int64_t *offset) noexcept nogil:
    # An unsigned integer that fills these bytes.
    cdef uint64_t value
    if size == 1 and p[0] < 0x80:
        value = p[0]
    elif (size == 2 and p[0] == 0xCC) or (size == 3 and p[0] == 0xCD) or (size == 5 and p[0] == 0xCE):
        value = big_endian(p + 1, <int>size - 1)
    elif size == 9 and p[0] == 0xCF:
        value = big_endian(p + 1, 8)
    else:
        return False
    offset[0] = <int64_t>value
    return value < <uint64_t>1 << 63


cdef str as_seq(number):
    return f"{number:0{DIGITS}x}"


cdef class Flight:
    """Publishes in flight, by their numbers, and the bytes that are to be sent.

    `make_body(topic, server)` gives the bytes of a publish's body up to where the event follows; `check(topic)` raises
    for a topic that is none. While `up` is False publishes are kept only; `resume` then sends them.
    """

    cdef public bint up
    cdef public int64_t most            # bytes of an event
    cdef public int64_t window_events, window_bytes
    cdef public int64_t send_bytes      # that are sent together at the most, while more is made
    cdef readonly int64_t publishing, in_flight_bytes
    cdef object make_body, check
    cdef dict bodies
    cdef set checked
    cdef str last_topic                 # that was good
    cdef dict flying                    # by number, in order
    cdef int64_t number
    cdef uint8_t *out
    cdef int64_t used, room

    def __init__(self, make_body, check, int64_t most):
        self.make_body = make_body
        self.check = check
        self.checked = set()
        self.most = most
        self.window_events = self.window_bytes = self.send_bytes = (<int64_t>1 << 62)
        self.bodies = {}
        self.flying = {}

    def __dealloc__(self):
        free(self.out)

    cdef int need(self, int64_t more) except -1:
        cdef uint8_t *larger
        if self.used + more > self.room:
            self.room = max(2 * self.room, self.used + more, 4096)
            larger = <uint8_t *>realloc(self.out, self.room)
            if larger == NULL:
                raise MemoryError
            self.out = larger
        return 0

    cdef bytes body(self, topic, server):
        cdef PyObject *known = PyDict_GetItem(self.bodies, topic) if server is None else NULL
        if known != NULL:
            return <bytes>known
        made = self.make_body(topic, server)
        if server is None:
            if len(self.bodies) >= MOST_TOPICS:
                self.bodies.clear()
            self.bodies[topic] = made
        return made

    cdef int send(self, int64_t number, Flying flying) except -1:
        cdef bytes body = self.body(flying.topic, flying.server)
        cdef int64_t body_size = PyBytes_GET_SIZE(body), event_size = PyBytes_GET_SIZE(flying.event)
        cdef int64_t length = REQUEST_SIZE + 1 + DIGITS + body_size + event_size
        cdef uint8_t *p
        cdef int i, digit
        self.need(4 + length)
        p = self.out + self.used
        self.used += 4 + length
        put_big_endian(p, length, 4)
        p += 4
        memcpy(p, REQUEST_AT, REQUEST_SIZE)
        p += REQUEST_SIZE
        p[0] = SEQ
        p += 1
        for i in range(DIGITS):
            digit = (number >> (4 * (DIGITS - 1 - i))) & 15
            p[i] = <uint8_t>(48 + digit if digit < 10 else 87 + digit)
        p += DIGITS
        memcpy(p, PyBytes_AS_STRING(body), body_size)
        memcpy(p + body_size, PyBytes_AS_STRING(flying.event), event_size)
        return 0

    def publish(self, token, str topic not None, bytes event not None, server=None) -> bool:
        """Publishes, and says whether to send at once: the only one in flight, or enough of them.

        `SessionBusy` over the window, `FrameTooLarge` over what the server takes.
        """
        return self.enter(token, topic, event, server)

    cdef bint enter(self, token, str topic, bytes event, server) except -1:
        cdef Flying flying
        cdef int64_t size = PyBytes_GET_SIZE(event)
        if self.publishing >= self.window_events or self.in_flight_bytes >= self.window_bytes:
            raise SessionBusy(self.publishing, self.in_flight_bytes)
        if size > self.most:
            raise FrameTooLarge(size, self.most)
        if topic is not self.last_topic and topic not in self.checked:
            self.check(topic)
            if len(self.checked) >= MOST_TOPICS:
                self.checked.clear()
            self.checked.add(topic)
        self.last_topic = topic
        flying = Flying.__new__(Flying)
        flying.token = token
        flying.topic = topic
        flying.event = event
        flying.server = server
        if self.up:
            self.send(self.number, flying)
        self.flying[self.number] = flying
        self.number += 1
        self.publishing += 1
        self.in_flight_bytes += size
        return self.publishing == 1 or self.used >= self.send_bytes

    cdef Flying pop(self, number):
        cdef PyObject *found = PyDict_GetItem(self.flying, number)
        cdef Flying flying
        if found == NULL:
            return None
        flying = <Flying>found
        PyDict_DelItem(self.flying, number)
        self.publishing -= 1
        self.in_flight_bytes -= PyBytes_GET_SIZE(flying.event)
        return flying

    def forget(self, str seq not None):
        """(token,) of the publish with this seq, which is not in flight any more; None if there is none."""
        cdef bytes text = seq.encode("utf-8", "surrogatepass")
        cdef Flying flying
        if PyBytes_GET_SIZE(text) != DIGITS:
            return None
        flying = self.pop(read_number(<const uint8_t *>PyBytes_AS_STRING(text)))
        return None if flying is None else (flying.token,)

    def answers(self, bytes data not None, Py_ssize_t at, list tokens not None, list offsets not None) -> int:
        """Takes answers to publishes from `at` on, and says where it stopped: at anything else, or at the end."""
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
        cdef int64_t length, offset, number
        cdef Flying flying
        if not 0 <= at <= end:
            raise IndexError(at)
        while end - at >= 4 + SHORTEST:
            length = big_endian(p + at, 4)
            if not SHORTEST <= length <= SHORTEST + 8 or length > end - at - 4:
                break
            if not self.read(p + at + 4, length, &number, &offset):
                break
            at += 4 + length
            flying = self.pop(number)
            if flying is not None:
                tokens.append(flying.token)
                offsets.append(offset)
        return at

    cdef bint read(self, const uint8_t *p, int64_t length, int64_t *number, int64_t *offset) noexcept:
        if memcmp(p, ANSWER_AT, ANSWER_SIZE) != 0 or p[ANSWER_SIZE] != SEQ:
            return False
        p += ANSWER_SIZE + 1
        number[0] = read_number(p)
        p += DIGITS
        if number[0] < 0 or memcmp(p, OFFSET_AT, OFFSET_SIZE) != 0:
            return False
        return read_offset(p + OFFSET_SIZE, length - SHORTEST + 1, offset)

    def seqs(self) -> list:
        """(seq, token) of all that are in flight, in order."""
        return [(as_seq(number), (<Flying>flying).token) for number, flying in self.flying.items()]

    def resume(self) -> list:
        """Sends all that are in flight, in order, under a new session; (seq, bytes) of those that are too large now."""
        cdef Flying flying
        too_large = []
        self.up = True
        self.bodies.clear()
        for number, flying in self.flying.items():
            if PyBytes_GET_SIZE(flying.event) > self.most:
                too_large.append((as_seq(number), PyBytes_GET_SIZE(flying.event)))
            else:
                self.send(number, flying)
        return too_large

    def write(self, bytes frame not None) -> None:
        """Sends a frame, behind those before it."""
        cdef int64_t size = PyBytes_GET_SIZE(frame)
        self.need(size)
        memcpy(self.out + self.used, PyBytes_AS_STRING(frame), size)
        self.used += size

    def take(self) -> bytes:
        """What is to be sent now."""
        cdef bytes made = PyBytes_FromStringAndSize(<char *>self.out, self.used)
        self.clear()
        return made

    def clear(self) -> None:
        """Drops what was to be sent."""
        self.used = 0
        if self.room > KEPT_ROOM:
            free(self.out)
            self.out = NULL
            self.room = 0


cdef class Soon:
    """Publishes of one link, for the thread and the event loop that it was made in.

    `send()` sends what there is now, `plan()` has it sent at the end of the loop's turn, as it is while `planned`. Once
    it is `over` the link is of no use any more.
    """

    cdef public bint planned, over
    cdef Flight flight
    cdef object loop, is_running, send, plan
    cdef unsigned long thread

    def __init__(self, Flight flight not None, loop, send, plan):
        self.flight = flight
        self.loop = loop
        self.is_running = loop.is_running
        self.send = send
        self.plan = plan
        self.thread = PyThread_get_thread_ident()

    def publish(self, str topic not None, bytes event not None, server=None):
        """Publishes; a future of the offset. None where it can't: it is over, or this is not its event loop.

        To compare threads takes far less than to ask asyncio which loop runs here, which asks the kernel.
        """
        return self.answer(topic, event, server)

    cdef Answer answer(self, str topic, bytes event, server):
        cdef Answer answer
        if self.over or PyThread_get_thread_ident() != self.thread or not self.is_running():
            return None
        answer = Answer.__new__(Answer)
        answer.loop = self.loop
        self.enter(answer, topic, event, server)
        return answer

    def publish_as(self, token, str topic not None, bytes event not None, server=None) -> None:
        """The same with a future of the caller's own make; the caller knows that this is its event loop."""
        self.enter(token, topic, event, server)

    cdef int enter(self, token, str topic, bytes event, server) except -1:
        if self.flight.enter(token, topic, event, server):
            self.send()
        elif not self.planned:
            self.plan()
        return 0


cdef class Publisher:
    """What a session publishes by: `soon` of its link, once it has one."""

    cdef public Soon soon

    def publish_soon(self, topic, event, *, server=None):
        """Publishes without waiting: a future of the offset, so that many are in flight.

        When the window is full it raises `SessionBusy`: await `room()`, or earlier ones.
        """
        cdef Answer answer
        if server is None and self.soon is not None and PyBytes_CheckExact(event) and PyUnicode_CheckExact(topic):
            answer = self.soon.answer(topic, event, None)
            if answer is not None:
                return answer
        return self._publish(topic, event, server)


def tell(list tokens not None, list offsets not None) -> None:
    """Gives futures their results, all that are not done yet."""
    cdef Answer answer
    cdef Py_ssize_t i
    if len(tokens) != len(offsets):
        raise ValueError(f"{len(offsets)} offsets for {len(tokens)} futures")
    for i in range(len(tokens)):
        token = tokens[i]
        if type(token) is Answer:
            answer = <Answer>token
            if answer.state == PENDING:
                answer.offset = offsets[i]
                answer.settle(DONE)
        elif not token.done():
            token.set_result(offsets[i])
