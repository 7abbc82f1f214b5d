"""A block of bytes of a known size that is filled piece by piece, also by the kernel, and then is bytes without a copy."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy


cdef class Block:
    """As a buffer, it is what is still missing of it."""

    cdef bytes whole                # stays here when it was taken: somebody may still have it as a buffer
    cdef bint taken
    cdef Py_ssize_t size
    cdef readonly Py_ssize_t filled

    def __cinit__(self, Py_ssize_t size):
        if size <= 0:
            raise ValueError("a block has a byte at least")
        self.whole = PyBytes_FromStringAndSize(NULL, size)
        self.size = size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.taken:
            raise BufferError("it is bytes by now")
        PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(self.whole) + self.filled, self.size - self.filled, False, flags)

    def put(self, const unsigned char[:] data not None) -> None:
        """Adds a piece."""
        if self.taken or data.shape[0] > self.size - self.filled:
            raise ValueError("more than is missing")
        if data.shape[0]:
            memcpy(PyBytes_AS_STRING(self.whole) + self.filled, &data[0], data.shape[0])
            self.filled += data.shape[0]

    def moved(self, Py_ssize_t size) -> None:
        """So many bytes were put there by whoever had it as a buffer."""
        if self.taken or not 0 <= size <= self.size - self.filled:
            raise ValueError("more than is missing")
        self.filled += size

    def take(self) -> bytes:
        """All of it, once."""
        if self.taken or self.filled < self.size:
            raise ValueError("it is not full, or was taken")
        self.taken = True
        return self.whole
