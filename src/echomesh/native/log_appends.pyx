"""Appends of an event loop: into the frame that fills when there is room, else into a line that is bounded."""

import os
import time
from collections import deque

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from echomesh.errors import LogBusy
from echomesh.native.atomics cimport em_now_ns
from echomesh.native.log_answers cimport DONE, PENDING, Answer, Answers
from echomesh.native.log_commit cimport Commits
from echomesh.native.log_fill cimport CLOCK_REALTIME, NO_ROOM, clock_gettime, timespec
from echomesh.native.log_pieces cimport Pieces
from echomesh.native.log_record cimport ORIGIN
from echomesh.native.log_topic cimport Topic

ENVIRONMENT = "TST"

cdef enum:
    AHEAD = 4       # events of many that are looked at before the first of them is appended


cdef class Appends(Answers):
    """What an event loop appends. Only its thread may call this."""

    def attach(self, core, loop, int signal_fd, int64_t line_limit) -> None:
        """Appends to this log from now on."""
        self.core = core
        self.commits = core.commits
        self.loop = loop
        self.clock = None if core.options.clock is time.time_ns else core.options.clock
        self.by_environment = {}
        self.line = deque()
        self.line_limit = line_limit
        self.signal_fd = signal_fd
        self.kick_later = self._kick
        self.pass_later = self._pass

    def detach(self) -> None:
        """Takes no more appends."""
        self.closed = True

    cdef int64_t now(self) except? -1:
        cdef timespec t
        if self.clock is not None:
            return self.clock()
        clock_gettime(CLOCK_REALTIME, &t)
        return t.tv_sec * 1000000000 + t.tv_nsec

    cdef Topic find(self, environment, topic):
        cdef PyObject *known
        if self.closed:
            self.core.check_open()
        if environment is not self.environment:
            self.names = self.by_environment.setdefault(environment, {})
            self.environment = environment
        known = PyDict_GetItem(self.names, topic)
        if known != NULL:
            return <Topic>known
        found = self.core.topic(environment, topic)
        self.names[found.name] = found
        return found

    def append(self, topic, event, *, environment=ENVIRONMENT, origin=None):
        """Appends an event, encoded as on the wire; a future of its offset."""
        cdef Topic found
        cdef Answer answer
        cdef int64_t offset
        if PyBytes_CheckExact(event) and origin is None:
            return self.append_at(
                topic, PyBytes_AS_STRING(event), PyBytes_GET_SIZE(event), environment, NULL, self.now())
        found = self.find(environment, topic)
        event = encoded(event)
        answer = Answer.__new__(Answer)
        answer.loop = self.loop
        if not found.journaled:
            answer.offset = self.core.add_loose(found, [bytes(event)], self.now(), [origin])[0]
            answer.state = DONE
            return answer
        offset = NO_ROOM if self.line_bytes else self.commits.enter(found, event, self.now(), origin)
        return self.placed(answer, found, event, origin, offset)

    cdef bint foresee(self, topic, const char *event, int64_t size, environment, uint64_t *hash) except -1:
        # Has memory bring what an append will look up; True with a hash for `append_at`. To ask for a few events before the
        # first of them is appended is what makes it worth while.
        cdef PyObject *known = NULL
        if environment is self.environment and not self.closed:
            known = PyDict_GetItem(self.names, topic)
        return known != NULL and (<Topic>known).window is not None and self.commits.identify(
            <Topic>known, event, size, hash)

    cdef Answer append_at(self, topic, const char *event, int64_t size, environment, const uint64_t *foreseen, int64_t now):
        # The same, from where the event stands; `now` is one time for all that came together.
        cdef PyObject *known = NULL
        cdef Topic found
        cdef Answer answer
        cdef int64_t offset
        if environment is self.environment and not self.closed:
            known = PyDict_GetItem(self.names, topic)
        found = <Topic>known if known != NULL else self.find(environment, topic)
        answer = Answer.__new__(Answer)
        answer.loop = self.loop
        if not found.journaled:
            answer.offset = self.core.add_loose(found, [event[:size]], now, None)[0]
            answer.state = DONE
            return answer
        offset = NO_ROOM if self.line_bytes else self.commits.put(found, event, size, NULL, now, foreseen)
        return self.placed(answer, found, event[:size] if offset == NO_ROOM else None, None, offset)

    cdef Answer placed(self, Answer answer, Topic found, event, origin, int64_t offset):
        if offset == NO_ROOM:
            self.queue(answer, found, [event], [origin], 0)
        else:
            answer.offset = offset
            answer.since = found.core.ticket
            self.entered(answer, found)
        return answer

    def append_many(self, topic, events, *, environment=ENVIRONMENT, origins=None):
        """Appends events one behind the other; a future of their offsets. They share one answer, but not one fate in
        a crash.

        `origins` has each event's; as bytes it is the first one's, and those of the others count on from there.
        """
        cdef Topic found = self.find(environment, topic)
        cdef Answer answer = Answer.__new__(Answer)
        cdef Pieces pieces = events if type(events) is Pieces and (origins is None or PyBytes_CheckExact(origins)) else None
        cdef list items = None if pieces is not None else as_items(events)
        cdef Py_ssize_t total = pieces.count if pieces is not None else len(items)
        cdef object sources = origins
        if PyBytes_CheckExact(origins):
            if len(origins) != ORIGIN:
                raise ValueError(f"an origin has {ORIGIN} bytes, not {len(origins)}")
            if not found.journaled:
                sources = counted_on(origins, total)
        elif origins is not None:
            sources = list(origins)
        cdef Py_ssize_t count = 0
        answer.loop = self.loop
        answer.offsets = []
        if not total:
            answer.state = DONE
        elif not found.journaled:
            answer.offsets.extend(self.core.add_loose(found, [bytes(item) for item in events], self.now(), sources))
            answer.state = DONE
        else:
            if not self.line_bytes:
                count = self.enter(answer, found, items, pieces, sources, 0)
            if count < total:
                self.queue(answer, found, items if pieces is None else list(pieces), sources, count)
        return answer

    cdef bint entered(self, Answer answer, Topic topic) except -1:
        # All of it has its offsets; the answer comes with the topic's last frame.
        answer.ticket = topic.core.ticket
        if answer.ticket <= self.answered:
            answer.state = DONE     # the twin of one that is on disk
            return True
        self.push(answer)
        if not self.kicking and not self.passing:
            self.kicking = True
            self.loop.call_soon(self.kick_later)
        return True

    cdef Py_ssize_t enter(self, Answer answer, Topic topic, list events, Pieces pieces, object origins,
                          Py_ssize_t i) except -1:
        # Enters events from number i on, of the one or the other; how many are in.
        cdef int64_t offset, now = self.now()
        cdef bint counted = PyBytes_CheckExact(origins)
        cdef char origin[ORIGIN]
        cdef uint64_t hashes[AHEAD][2]
        cdef bint named[AHEAD]
        cdef Py_ssize_t total = pieces.count if pieces is not None else len(events), foreseen = i, at
        while i < total:
            if counted:
                origin_at(origin, PyBytes_AS_STRING(origins), i)
            if pieces is not None:
                while foreseen < min(i + AHEAD, total):
                    at = pieces.bounds[foreseen]
                    named[foreseen % AHEAD] = topic.window is not None and self.commits.identify(
                        topic, pieces.base + at, pieces.bounds[foreseen + 1] - at, hashes[foreseen % AHEAD])
                    foreseen += 1
                at = pieces.bounds[i]
                offset = self.commits.put(topic, pieces.base + at, pieces.bounds[i + 1] - at, origin if counted else NULL,
                                          now, hashes[i % AHEAD] if named[i % AHEAD] else NULL)
            elif counted:
                offset = self.commits.enter_from(topic, events[i], now, origin)
            else:
                offset = self.commits.enter(topic, events[i], now, None if origins is None else origins[i])
            if offset == NO_ROOM:
                return i
            if answer.since == 0:
                answer.since = topic.core.ticket
            if answer.offsets is None:
                answer.offset = offset
            else:
                answer.offsets.append(offset)
            i += 1
        self.entered(answer, topic)
        return i

    cdef bint queue(self, Answer answer, Topic topic, list events, object origins, Py_ssize_t count) except -1:
        cdef int64_t size = sum([memoryview(event).nbytes for event in events[count:]]) + 1
        if self.line_bytes and self.line_bytes + size > self.line_limit:
            raise LogBusy(self.core.paths.root, self.line_bytes, self.line_limit)
        self.line.append([answer, topic, events, origins, count, size])
        self.line_bytes += size
        return True

    cdef bint advance(self) except -1:
        # Those in the line whom there is room for now.
        cdef Answer answer
        cdef list entry
        while self.line_bytes:
            entry = self.line[0]
            answer = entry[0]
            if answer.state == PENDING:
                try:
                    entry[4] = self.enter(answer, entry[1], entry[2], None, entry[3], entry[4])
                except Exception as error:
                    answer.fail(error)
                else:
                    if entry[4] < len(entry[2]):
                        return False
            self.line.popleft()
            self.line_bytes -= entry[5]
        return True

    def _harvest(self) -> None:
        """The eventfd rang: there are answers, or room."""
        try:
            os.eventfd_read(self.signal_fd)
        except BlockingIOError:
            return
        self._pass()

    def look(self) -> None:
        """For a loop in the midst of much that it appends: answers what was committed meanwhile, and has what is there
        committed. Otherwise disk and loop would take turns. Not for a task: others go on in here.
        """
        if self.passing:
            return
        if self.commits.done_ticket > self.answered:
            self._harvest()
        elif self.waiting > 1:
            self.commits.kick(True, False, 0, 0)

    def _pass(self) -> None:
        """Answers what was committed. Only the event loop may call this: tasks go on in here."""
        cdef int64_t began = em_now_ns()
        cdef bint queued
        self.passing = True
        self.commits.begin_turn()
        try:
            queued = self.run(self.commits.done_ticket, self.core.failures)
            if self.on_pass is not None:
                self.on_pass()
        except BaseException:
            # Ctrl-C in a task that went on: the others get their answers when the loop runs again.
            self.loop.call_soon(self.pass_later)
            raise
        finally:
            self.passing = False
        if self.line_bytes:
            self.advance()
        if self.commits.many:
            with nogil:
                self.commits.copy_beside()
        if self.waiting == 1 and not self.kicking:
            # Perhaps the only one: see `_kick`.
            self.kicking = True
            self.loop.call_soon(self.kick_later)
            self.commits.kick(False, True, self.count, began)
        elif queued:
            # Behind the tasks that were answered through the loop's queue, so that what they append goes into the same
            # commit.
            self.loop.call_soon(self._turned, self.count, began)
        else:
            self.commits.kick(self.waiting > 0, True, self.count, began)
        if self.room is not None and not self.line_bytes:
            self.room = told(self.room)
        if self.idle is not None and not self.line_bytes and not self.waiting:
            self.idle = told(self.idle)

    def _turned(self, int64_t count, int64_t began) -> None:
        self.commits.kick(self.waiting > 0, True, count, began)

    def _kick(self) -> None:
        self.kicking = False
        if self.waiting > 0 and self.commits.commit_alone():
            self._pass()
        else:
            self.commits.kick(True, False, 0, 0)

    def when_room(self):
        """A future: nothing waits in line."""
        if not self.line_bytes:
            return done(self.loop)
        if self.room is None:
            self.room = self.loop.create_future()
        return self.room

    def when_idle(self):
        """A future: everything was answered."""
        if not self.line_bytes and not self.waiting:
            return done(self.loop)
        if self.idle is None:
            self.idle = self.loop.create_future()
        return self.idle


cdef void origin_at(char *made, const char *first, int64_t i) noexcept:
    # The origin of the event that stands so far behind the first. Bytes of the stack alone: nothing here could raise.
    cdef int64_t offset
    memcpy(made, first, ORIGIN)
    memcpy(&offset, first + ORIGIN - sizeof(offset), sizeof(offset))
    offset += i
    memcpy(made + ORIGIN - sizeof(offset), &offset, sizeof(offset))


cdef list counted_on(bytes first, Py_ssize_t count):
    cdef list made = []
    cdef char origin[ORIGIN]
    cdef Py_ssize_t i
    for i in range(count):
        origin_at(origin, PyBytes_AS_STRING(first), i)
        made.append(PyBytes_FromStringAndSize(origin, ORIGIN))
    return made


cdef list as_items(events):
    return [event if PyBytes_CheckExact(event) else encoded(event) for event in events]


cdef object encoded(event):
    # An event knows its bytes; a str has an `encode` too, and is none.
    if PyObject_CheckBuffer(event) or isinstance(event, str):
        return event
    encode = getattr(event, "encode", None)
    return event if encode is None else encode()


cdef object told(future):
    if not future.done():
        future.set_result(None)
    return None


cdef object done(loop):
    future = loop.create_future()
    future.set_result(None)
    return future
