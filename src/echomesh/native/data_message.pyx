"""Messages as subscribers have them."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject


cdef class Origin(Taker):
    """The stream that messages came from."""

    cdef int release(self, int64_t token) except -1:
        return 0


# It can be part of no cycle that leads back to it: what it refers to never refers to messages.
@cython.no_gc
@cython.freelist(256)
cdef class Message:
    """A message as a subscriber gets it. It is itself a buffer: `bytes(message)` and `numpy.frombuffer(message)` work.

    A large one is in the publisher's pool, which has that place again when the message and all views of it are gone.
    """

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, True, flags)

    def __len__(self):
        return self.size

    @property
    def data(self):
        """What was sent, as a read-only memoryview."""
        return PyMemoryView_FromObject(self)

    @property
    def topic(self):
        """The topic that it was published on."""
        return self.origin.topic

    @property
    def publisher(self):
        """The id of the publisher."""
        return self.origin.publisher

    @property
    def time(self):
        """When it was sent, in seconds since 1970."""
        return self.time_ns / 1e9

    @property
    def inbox(self):
        """The subscriber that got it."""
        return self.origin.subscriber

    def reply(self, data):
        """Answers a request."""
        return self.origin.subscriber.reply(self, data)

    @property
    def prefix(self):
        """What travels with it beside the data; of requests and replies."""
        if isinstance(self.owner, Slice):
            return (<Slice>self.owner).prefix
        return PyBytes_FromStringAndSize(self.start - self.prefix_length, self.prefix_length)

    def __repr__(self):
        return f"Message({self.topic!r}, sequence={self.sequence}, {self.size} bytes)"


@cython.no_gc
@cython.freelist(16)
cdef class Slice:
    # A place in a pool; with it the place is given back.

    def __dealloc__(self):
        if self.origin is not None:     # else it was not made by `new_slice`
            self.origin.release(self.token)


# From another module `__new__` goes through the type's slots: these save that.

cdef Message new_message():
    return Message.__new__(Message)


cdef Slice new_slice(Origin origin, mapping, int64_t token, bytes prefix):
    cdef Slice made = Slice.__new__(Slice)
    made.origin = origin
    made.mapping = mapping
    made.token = token
    made.prefix = prefix
    return made
