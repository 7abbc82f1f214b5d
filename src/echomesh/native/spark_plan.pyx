"""Loops over all topics of a stream, of which there may be thousands in each batch: what is new, and how large it is.
Whatever is not plain is left to Python.

A range is a tuple of topic, first offset, and the offset behind the last.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.math cimport llrint
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)


cdef object range_of(type make, topic, start, until):
    # As `make(topic, start, until)`, which takes five times as long: it is a tuple with names, and nothing else.
    made = PyType_GenericAlloc(<PyTypeObject *>make, 3)
    Py_INCREF(topic)
    Py_INCREF(start)
    Py_INCREF(until)
    PyTuple_SET_ITEM(made, 0, topic)
    PyTuple_SET_ITEM(made, 1, start)
    PyTuple_SET_ITEM(made, 2, until)
    return made


def grown(dict begin not None, dict bounds not None, type make not None):
    """(ranges, events) from where each topic was read up to its end, those without events too if they were read before.

    `make` is the kind of a range. None when a topic is gone, or was read from where it has no events now.
    """
    cdef list found = []
    cdef PyObject *read
    cdef int64_t earliest, end, at, events = 0
    cdef Py_ssize_t known = 0
    if not issubclass(make, tuple) or make.__basicsize__ != tuple.__basicsize__:
        raise TypeError(f"{make.__name__} is more than a tuple with names")
    for topic, state in bounds.items():
        earliest, end = (<tuple>state)[0], (<tuple>state)[1]
        at = earliest
        read = PyDict_GetItem(begin, topic)
        if read != NULL:
            at = <object>read
            known += 1
        if at < earliest or at > end:
            return None
        if at < end or read != NULL:
            found.append(range_of(make, topic, at, (<tuple>state)[1]))
            events += end - at
    return (found, events) if known == len(begin) else None


def rows_of(list ranges not None) -> int:
    """The events of all ranges."""
    cdef int64_t total = 0
    for one in ranges:
        total += <int64_t>(<tuple>one)[2] - <int64_t>(<tuple>one)[1]
    return total


def filled(list ranges not None) -> list:
    """Those that have events."""
    return [one for one in ranges if <int64_t>(<tuple>one)[1] < <int64_t>(<tuple>one)[2]]


def ends(list ranges not None, dict others not None) -> dict:
    """Where each topic ends: others as they are, and those of the ranges."""
    cdef dict found = dict(others)
    for one in ranges:
        found[(<tuple>one)[0]] = (<tuple>one)[2]
    return found


def packed(list ranges not None, list sizes not None, int64_t tasks, make) -> list:
    """The ranges in order, cut into at most so many lists of about the same number of bytes; see `pack`."""
    cdef list found = [], some = []
    cdef double share = max(1.0, <double>sum(sizes) / tasks), room = share, size, each
    cdef int64_t left = tasks, start, until, stop
    cdef Py_ssize_t i
    for i in range(len(ranges)):
        size = <int64_t>sizes[i]
        if size < room or left == 1:
            some.append(ranges[i])
            room -= size
            continue
        topic, start, until = ranges[i]
        each = max(size, 1.0) / (until - start)
        while start < until:
            stop = until if left == 1 else min(until, start + max(1, <int64_t>round(room / each)))
            some.append(make(topic, start, stop))
            room -= (stop - start) * each
            start = stop
            if room < share * 1e-6 and left > 1:
                found.append(some)
                some, room, left = [], share, left - 1
    return [*found, some] if some else found


def guessed(list ranges not None, dict seen not None, double usual, int64_t few, bint enough) -> tuple:
    """(sizes, new): about how many bytes each has, and those of which nothing fitting was seen: see `Sizes`. With `enough`
    seen, new ones with few events are like the others.
    """
    cdef list sizes = [], new = []
    cdef PyObject *known
    cdef list marks
    cdef int64_t start, until, begin, looked
    for one in ranges:
        start, until = (<tuple>one)[1], (<tuple>one)[2]
        known = PyDict_GetItem(seen, (<tuple>one)[0])
        if known == NULL:
            if not enough or until - start > few:
                new.append(one)
            sizes.append(llrint((until - start) * usual))
            continue
        marks, looked = (<tuple>known)[0], (<tuple>known)[1]
        begin = (<tuple>marks[0])[0]
        if (start - begin > few or until - looked > max(few, looked - begin)) and (not enough or until - start > few):
            new.append(one)
        if len(marks) == 1:
            sizes.append(llrint(max(<int64_t>0, until - start) * <double>(<tuple>marks[0])[1]))
        else:
            sizes.append(round((<object>known).size(one)))
    return sizes, new
