"""Answers: the futures that appends give to asyncio, settled in one pass for each commit.

An answer does what a future does: it can be awaited, waited for, gathered, shielded and cancelled. What differs is how
tasks that await one go on: not by a callback for each in the event loop's queue, but one after the other in the pass
itself. That halves what asyncio costs an append.
"""

import asyncio
import contextvars

cimport cython
from cpython.exc cimport PyErr_SetObject
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1
    bint PyCFunction_Check(object callback)
    PyObject *PyCFunction_GET_SELF(object callback)

cdef extern from *:
    """
    static void em_set_am_send(PyObject *type, PySendResult (*send)(PyObject *, PyObject *, PyObject **)) {
        ((PyTypeObject *)type)->tp_as_async->am_send = send;
        PyType_Modified((PyTypeObject *)type);
    }
    """
    void em_set_am_send(PyObject *type, PySendResult (*send)(PyObject *, PyObject *, PyObject **) noexcept)

cdef object Task = asyncio.Task
cdef object CancelledError = asyncio.CancelledError
cdef object InvalidStateError = asyncio.InvalidStateError


@cython.final
@cython.freelist(1024)
cdef class Answer:
    """The future of an append: its offset, or the offsets of many."""

    cdef object value(self):
        return self.offset if self.offsets is None else self.offsets

    cdef bint settle(self, int state) except -1:
        # True when others than a task wait for it, and were put into the loop's queue.
        cdef object callback = self.callback, context = self.context, others = self.others
        self.state = state
        if callback is None:
            return False
        self.callback = self.context = self.others = None
        self.loop.call_soon(callback, self, context=context)
        if others is not None:
            for callback, context in others:
                self.loop.call_soon(callback, self, context=context)
        return True

    cdef bint fail(self, error) except -1:
        self.failed = self.loop.create_future()
        self.failed.set_exception(error)
        return self.settle(FAILED)

    def done(self) -> bool:
        """Whether there is a result, an error, or nobody who wants one."""
        return self.state != PENDING

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.state == CANCELLED

    def cancel(self, msg=None) -> bool:
        """Nobody wants to know any more. The event is appended all the same, unless it still waits for room."""
        if self.state != PENDING:
            return False
        self.message = msg
        self.settle(CANCELLED)
        return True

    def _make_cancelled_error(self):
        return CancelledError() if self.message is None else CancelledError(self.message)

    def result(self):
        """The offset, or the offsets; raises what kept the event from the disk."""
        if self.state == DONE:
            return self.value()
        if self.state == FAILED:
            return self.failed.result()
        if self.state == CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Result is not ready.")

    def exception(self):
        """What kept the event from the disk, or None."""
        if self.state == DONE:
            return None
        if self.state == FAILED:
            return self.failed.exception()
        if self.state == CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Exception is not set.")

    def set_exception(self, error) -> None:
        """Whoever waits for it learns this error."""
        if self.state != PENDING:
            raise InvalidStateError(f"{self!r} has an end already")
        self.fail(error)

    def get_loop(self):
        """The event loop that it belongs to."""
        return self.loop

    @property
    def _loop(self):
        return self.loop

    @property
    def _asyncio_future_blocking(self):
        return self.blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, bint value):
        self.blocking = value

    def add_done_callback(self, callback, *, context=None) -> None:
        """Calls `callback(answer)` in the event loop once it is done."""
        if context is None:
            context = contextvars.copy_context()
        if self.state != PENDING:
            self.loop.call_soon(callback, self, context=context)
        elif self.callback is None:
            self.callback = callback
            self.context = context
        elif self.others is None:
            self.others = [(callback, context)]
        else:
            self.others.append((callback, context))

    def remove_done_callback(self, callback) -> int:
        """Forgets the callback; how often it was there."""
        cdef list kept = [] if self.callback is None else [(self.callback, self.context), *(self.others or ())]
        cdef Py_ssize_t before = len(kept)
        kept = [entry for entry in kept if entry[0] != callback]
        self.callback, self.context = kept[0] if kept else (None, None)
        self.others = kept[1:] or None
        return before - len(kept)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self.state == DONE:
            raise StopIteration(self.value())
        return self.step()

    cdef object step(self):
        if self.state != PENDING:
            return self.result()
        if self.blocking:
            raise RuntimeError("await wasn't used with future")
        self.blocking = True
        return self

    def __repr__(self):
        state = ("pending", "finished", "failed", "cancelled")[self.state]
        return f"<Answer {state}{f' result={self.value()}' if self.state == DONE else ''}>"


cdef PySendResult send(PyObject *of, PyObject *_, PyObject **result) noexcept:
    # What `await` calls: without a StopIteration to carry the value.
    cdef Answer answer = <Answer>of
    cdef object found
    try:
        found = answer.value() if answer.state == DONE else answer.step()
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        result[0] = NULL
        return PYGEN_ERROR
    Py_INCREF(found)
    result[0] = <PyObject *>found
    return PYGEN_RETURN if answer.state == DONE else PYGEN_NEXT


em_set_am_send(<PyObject *>Answer, send)


cdef class Answers:
    """Those who wait, in the order of their tickets."""

    def __len__(self):
        return self.waiting

    cdef bint push(self, Answer answer) except -1:
        # A twin may wait for an older ticket than the one before it: it is answered behind that.
        if self.last is None:
            self.first = answer
        else:
            self.last.behind = answer
        self.last = answer
        self.waiting += 1
        return True

    cdef bint run(self, int64_t done, list failures) except -1:
        # Answers all up to this ticket; True when callbacks of others than tasks were put into the loop's queue. Tasks
        # go on here, and append again: that is behind `done`.
        cdef Answer answer
        cdef object callback, context
        cdef bint queued = False
        self.answered = done
        self.count = 0
        while self.first is not None and self.first.ticket <= done:
            answer = self.first
            self.first = answer.behind
            answer.behind = None
            if self.first is None:
                self.last = None
            self.waiting -= 1
            self.count += 1
            if answer.state != PENDING:
                continue
            if failures and fail(answer, failures):
                queued = True
                continue
            callback = answer.callback
            if callback is None:
                answer.state = DONE
            elif answer.others is None and PyCFunction_Check(callback) and isinstance(
                    <object>PyCFunction_GET_SELF(callback), Task):
                context = answer.context
                answer.state = DONE
                answer.callback = answer.context = None
                PyContext_Enter(context)
                try:
                    callback(answer)
                finally:
                    PyContext_Exit(context)
            else:
                queued = answer.settle(DONE) or queued
        return queued

    def pending(self) -> list:
        """Those who wait."""
        cdef list found = []
        cdef Answer answer = self.first
        while answer is not None:
            found.append(answer)
            answer = answer.behind
        return found


cdef bint fail(Answer answer, list failures) except -1:
    for first, last, error in failures:
        if answer.since <= last and answer.ticket >= first:
            answer.fail(error)
            return True
    return False
