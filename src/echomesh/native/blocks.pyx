"""A block of bytes of a known size that is filled piece by piece, also by the kernel, and then is bytes without a copy."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy


cdef class Block:
    """As a buffer, it is what is still missing of it."""

    cdef bytes whole
    cdef Py_ssize_t size
    cdef readonly Py_ssize_t filled

    def __cinit__(self, Py_ssize_t size):
        if size <= 0:
            raise ValueError("a block has a byte at least")
        self.whole = PyBytes_FromStringAndSize(NULL, size)
        self.size = size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.whole is None:
            raise BufferError("it is bytes by now")
        PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(self.whole) + self.filled, self.size - self.filled, False, flags)

    def put(self, const unsigned char[:] data not None) -> None:
        """Adds a piece."""
        if self.whole is None or data.shape[0] > self.size - self.filled:
            raise ValueError("more than is missing")
        if data.shape[0]:
            memcpy(PyBytes_AS_STRING(self.whole) + self.filled, &data[0], data.shape[0])
            self.filled += data.shape[0]

    def moved(self, Py_ssize_t size) -> None:
        """So many bytes were put there by whoever had it as a buffer."""
        if self.whole is None or not 0 <= size <= self.size - self.filled:
            raise ValueError("more than is missing")
        self.filled += size

    def take(self) -> bytes:
        """All of it; then the block has nothing any more."""
        if self.whole is None or self.filled < self.size:
            raise ValueError("it is not full, or was taken")
        made, self.whole = self.whole, None
        return made
