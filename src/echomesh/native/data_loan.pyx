"""Messages that are written where their subscribers will read them."""

from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int64_t

from echomesh.native.data_send cimport Sender
from echomesh.native.pool cimport Lease


cdef class Loan:
    """A message that is written in place; it is sent at the end of the block, unless that raises."""

    cdef Sender sender
    cdef Lease lease
    cdef object view, timeout
    cdef int64_t size

    def __init__(self, Sender sender not None, int64_t size, timeout=None):
        self.sender = sender
        self.size = size
        self.timeout = timeout

    def __enter__(self):
        if self.sender.state or not self.sender.home.alive:
            self.sender.refuse()
        self.lease = self.sender.place(self.size, self.timeout)
        if self.lease is None:
            self.sender.no_room(self.timeout)
        self.view = PyMemoryView_FromObject(self.lease)
        return self.view

    def __exit__(self, kind, error, trace):
        cdef Lease lease = self.lease
        cdef object rest
        view, self.view, self.lease = self.view, None, None
        try:
            view.release()
        except BufferError:     # views of it are still there, which `seal` says
            pass
        view = None
        if kind is not None:
            return
        lease.seal(lease.length)
        rest = self.sender.post_lease(lease, 0, b"", self.timeout)
        if rest is not None:
            self.sender.settle(rest)
