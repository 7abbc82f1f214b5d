"""Events that stand one behind the other in some bytes, appended from there without an object for each."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc


cdef class Pieces:
    """A sequence of bytes, each made when it is asked for."""

    def __dealloc__(self):
        free(self.bounds)

    cdef int add(self, int64_t bound) except -1:
        # The first bound begins a piece; each one after it ends one, and begins the next.
        cdef int64_t *larger
        cdef Py_ssize_t used = self.count + 1 if self.bounds != NULL else 0
        if used == self.room:
            larger = <int64_t *>realloc(self.bounds, (2 * self.room + 64) * sizeof(int64_t))
            if larger == NULL:
                raise MemoryError
            self.bounds = larger
            self.room = 2 * self.room + 64
        self.bounds[used] = bound
        self.count = used
        return 0

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(i)
        return PyBytes_FromStringAndSize(self.base + self.bounds[i], self.bounds[i + 1] - self.bounds[i])
