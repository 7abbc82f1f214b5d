"""What a subscriber owes the publisher of one stream: credit for what was taken, and places of the pool."""

from echomesh.errors import EchomeshError
from echomesh.native.data_frames cimport CREDIT, RELEASE, announce, frame_of, frame_t, put_frame


cdef class Account(Origin):
    """The way back to one publisher."""

    def __init__(self, Home home not None, Outlet outlet not None, int64_t stream_id, int window):
        self.home = home
        self.outlet = outlet
        self.stream_id = stream_id
        self.window = window
        self.released = []
        self.open = True

    cdef int owe_credit(self) except -1:
        if not self.give_credit():
            self.home.owing = True
        return 0

    cdef bint give_credit(self) except -1:
        cdef frame_t frame
        cdef int64_t limit = self.taken + self.window
        if not self.open or not self.home.alive:
            return True
        frame = frame_of(self.stream_id, CREDIT, self.taken, limit)
        try:
            if not put_frame(self.outlet, &frame, <char *>&self.taken_bytes, 8, NULL, 0):
                return False
        except EchomeshError:       # the peer's ring is gone or damaged: its end is noticed elsewhere
            return True
        self.told = self.taken
        self.told_bytes = self.taken_bytes
        self.limit = limit
        announce(self.outlet)
        return True

    cdef int release(self, int64_t token) except -1:
        if not self.open or self.home is None or not self.home.alive:    # None: the collector was here
            return 0
        if self.released or not self.put_back(token):
            self.released.append(token)
            self.home.owing = True
        return 0

    cdef void drop(self, int64_t token) noexcept:
        # Of a message that nobody took. What goes wrong is printed, as in a destructor, and the others are dropped too.
        self.release(token)

    cdef bint put_back(self, int64_t token) except -1:
        # False when there is no room now.
        cdef frame_t frame = frame_of(self.stream_id, RELEASE, 0, 0)
        try:
            if not put_frame(self.outlet, &frame, <char *>&token, 8, NULL, 0):
                return False
        except EchomeshError:       # the peer's ring is gone or damaged
            return True
        announce(self.outlet)
        return True

    cdef bint give_back(self) except -1:
        while self.released and self.open and self.home.alive:
            if not self.put_back(self.released[len(self.released) - 1]):
                return False
            self.released.pop()
        return True
