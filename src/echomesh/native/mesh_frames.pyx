"""Events on their way out of the log and into it, many at a time: as frames for subscribers and bridges, and back."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from echomesh.native.big_endian cimport put_big_endian
from echomesh.native.log_record cimport HEADER, ORIGIN, Records
from echomesh.native.mesh_event cimport event_at

cdef enum:
    MOST_EVENTS = 0xFFFF
    LENGTH_BYTES = 4

cdef bytes NAME = b"\xabCloudEvents"


cdef const char *event_of(Records records, Py_ssize_t i, int64_t *size) noexcept:
    cdef const char *record = records.base + records.starts[i]
    cdef uint32_t length
    cdef uint16_t flags
    cdef int64_t skip
    memcpy(&length, record, 4)
    memcpy(&flags, record + 24, 2)
    skip = HEADER + (ORIGIN if flags else 0)
    size[0] = length - skip
    return record + skip


def events_frame(bytes head not None, Records records not None, Py_ssize_t first, Py_ssize_t end) -> bytes:
    """The frame of a message that begins with `head` and ends with `CloudEvents`: these of the records, as they are."""
    cdef Py_ssize_t i
    cdef int array = 1 if end - first < 16 else 3      # bytes that say how many there are
    cdef int64_t size = 0, total = PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(NAME) + array
    cdef const char *event
    cdef bytes made
    cdef uint8_t *p
    if not 0 <= first <= end <= records.count or end - first > MOST_EVENTS:
        raise IndexError((first, end))
    for i in range(first, end):
        event_of(records, i, &size)
        total += size
    if total > 0xFFFFFFFF:
        raise OverflowError(total)
    made = PyBytes_FromStringAndSize(NULL, LENGTH_BYTES + total)
    p = <uint8_t *>PyBytes_AS_STRING(made)
    put_big_endian(p, total, LENGTH_BYTES)
    p += LENGTH_BYTES
    memcpy(p, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    p += PyBytes_GET_SIZE(head)
    memcpy(p, PyBytes_AS_STRING(NAME), PyBytes_GET_SIZE(NAME))
    p += PyBytes_GET_SIZE(NAME)
    if array == 1:
        p[0] = <uint8_t>(0x90 | (end - first))
    else:
        p[0] = 0xDC
        put_big_endian(p + 1, end - first, 2)
    p += array
    for i in range(first, end):
        event = event_of(records, i, &size)
        memcpy(p, event, size)
        p += size
    return made


def arrived(list raws not None, Py_ssize_t start, Py_ssize_t end, bytes log_id not None, int64_t first, judge) -> tuple:
    """(events, origins) of those of a message, where they were first published from `first` on.

    `judge(event)` says whether to take one that is not known to be good. When all are taken, `origins` is the first
    one's alone.
    """
    cdef list events = raws if start == 0 and end == len(raws) else raws[start:end]
    cdef list kept = None
    cdef Py_ssize_t i
    if PyBytes_GET_SIZE(log_id) != 16 or not 0 <= start <= end <= len(raws):
        raise ValueError("16 bytes of a log id, and a part of the events")
    for i in range(end - start):
        if is_good(events[i]) or judge(bytes(events[i])):
            if kept is not None:
                kept.append(i)
        elif kept is None:
            kept = list(range(i))
    if kept is None:
        return events, origin_from(log_id, first)
    return [events[i] for i in kept], [origin_from(log_id, first + i) for i in kept]


cdef bint is_good(event) except -1:
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(event, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        return event_at(p, p + view.len, False) == p + view.len
    finally:
        PyBuffer_Release(&view)


cdef bytes origin_from(bytes log_id, int64_t offset):
    cdef char origin[ORIGIN]
    memcpy(origin, PyBytes_AS_STRING(log_id), 16)
    memcpy(origin + 16, &offset, 8)
    return PyBytes_FromStringAndSize(origin, ORIGIN)


def runs(Records records not None, bytes peer not None) -> list:
    """(first, end, origin, theirs) of the records that can go in one message: one behind the other, of one origin.

    `origin` is the first one's, None for those published here. `theirs` are those that are not for the server whose log
    is `peer`: its own, and those that are for this server alone.
    """
    cdef list found = []
    cdef Py_ssize_t i, first = 0
    cdef const char *origin = NULL
    cdef const char *before = NULL
    cdef bint theirs = False, was_theirs = False
    if PyBytes_GET_SIZE(peer) != 16:
        raise ValueError("16 bytes of a log id")
    for i in range(records.count):
        origin = origin_of(records, i)
        theirs = origin != NULL and (
            memcmp(origin, PyBytes_AS_STRING(peer), 16) == 0 or memcmp(origin, HERE, ORIGIN) == 0
        )
        if i > 0 and (theirs != was_theirs or not (theirs or follows(before, origin))):
            found.append(run(records, first, i, was_theirs))
            first = i
        before, was_theirs = origin, theirs
    if records.count:
        found.append(run(records, first, records.count, was_theirs))
    return found


def consecutive(list offsets not None, int64_t first) -> bool:
    """Whether the offsets count on from the first."""
    cdef Py_ssize_t i
    for i in range(len(offsets)):
        if <int64_t>offsets[i] != first + i:
            return False
    return True


cdef char HERE[ORIGIN]
memset(HERE, 0, ORIGIN)


cdef const char *origin_of(Records records, Py_ssize_t i) noexcept:
    cdef const char *record = records.base + records.starts[i]
    cdef uint16_t flags
    memcpy(&flags, record + 24, 2)
    return record + HEADER if flags else NULL


cdef bint follows(const char *before, const char *origin) noexcept:
    # Whether the second is the next one of the same origin.
    cdef int64_t one, other
    if before == NULL or origin == NULL:
        return before == origin
    memcpy(&one, before + 16, 8)
    memcpy(&other, origin + 16, 8)
    return other == one + 1 and memcmp(before, origin, 16) == 0


cdef tuple run(Records records, Py_ssize_t first, Py_ssize_t end, bint theirs):
    cdef const char *origin = origin_of(records, first)
    return first, end, None if origin == NULL else PyBytes_FromStringAndSize(origin, ORIGIN), theirs
