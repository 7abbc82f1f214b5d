"""Ring memory handed to Python: messages read in place, and room to write in place."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo

from echomesh.errors import ClosedError, ViewKept
from echomesh.native.ring_core cimport HEADER, ring_abort, ring_publish


cdef class Window:
    # What the views of a message in place are made of; it counts them.

    def __cinit__(self, RingBase ring):
        self.ring = ring

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.length, True, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1


@cython.no_gc_clear
cdef class Claim:
    """Room in a ring, to be filled in place: a writable buffer that ends with `commit` or `abort`.

    As a context manager it gives a memoryview, commits at the end, and aborts when the block raises.
    """

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.done:
            raise ClosedError("this claim was committed or aborted")
        PyBuffer_FillInfo(view, self, self.ring.core.base + self.index + HEADER, self.length, False, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def commit(self) -> None:
        """Publishes the message."""
        self.end()
        ring_publish(&self.ring.core, self.index, self.length)
        if self.ring.bell is not None:
            self.ring.rung()

    def abort(self) -> None:
        """Gives the room up; the reader skips it."""
        self.end()
        ring_abort(&self.ring.core, self.index, self.length)
        if self.ring.bell is not None:
            self.ring.rung()

    cdef int end(self) except -1:
        if self.done:
            raise ClosedError("this claim was committed or aborted")
        if self.exports:
            raise ViewKept("views of this claim are still in use: release them before commit or abort")
        self.done = True
        return 0

    def __enter__(self):
        self.entered = memoryview(self)
        return self.entered

    def __exit__(self, kind, error, trace):
        try:
            self.entered.release()
        except BufferError:
            pass
        if kind is None:
            self.commit()
        elif not self.exports:      # else the block's error goes first, and the last view's end aborts the claim
            self.abort()

    def __dealloc__(self):
        # A claim that was lost would block the reader for ever.
        if not self.done and self.ring is not None:
            ring_abort(&self.ring.core, self.index, self.length)
            if self.ring.bell is not None:
                self.ring.rung()
