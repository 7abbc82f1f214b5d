"""Reading the rings of all sources of a nukleus."""

from cpython.dict cimport PyDict_Next
from cpython.ref cimport PyObject

from echomesh.errors import DamagedError
from echomesh.native.ring_core cimport ring_readable

cdef enum:
    FRAMES_A_TURN = 256


cdef class Source:
    """One ring that is read, and the streams that come over it."""


cdef class Intake:
    """All rings that are read. A derived class says what becomes of one that turns out to be `damaged`.

    `changed` is set when other rings than before are to be waited for; whoever waits clears it.
    """

    def __init__(self, frames):
        self.inlets = {}
        self.frames = frames
        self.changed = True

    cpdef int64_t read(self, Source inlet) except -1:
        """Gives a turn's worth of events to their streams, and tells how many."""
        cdef int64_t count
        self.reading = inlet
        try:
            count = inlet.ring.deliver(None, inlet.peer, FRAMES_A_TURN)
        except DamagedError as error:
            self.damaged(inlet, error)
            return 1
        finally:
            self.reading = None
        if self.frames is not None:
            self.frames.add(count)
        return count

    cpdef int64_t read_ready(self) except -1:
        """Reads a turn of each ring in which something is, and tells how many events that were."""
        cdef PyObject *found
        cdef Py_ssize_t at = 0
        cdef Source inlet, first = None
        cdef list others = None
        cdef int64_t done
        while PyDict_Next(self.inlets, &at, NULL, &found):
            inlet = <Source>found
            if not inlet.peer.paused and not inlet.ring.closed and ring_readable(&inlet.ring.core):
                if first is None:
                    first = inlet
                else:
                    others = [] if others is None else others
                    others.append(inlet)
        if first is None:
            return 0
        done = self.read(first)
        if others is not None:
            for inlet in others:
                if not inlet.peer.paused and not inlet.ring.closed:     # what came first may have changed it
                    done += self.read(inlet)
        return done

    def damaged(self, inlet, why) -> None:
        """A ring can't be read."""
        raise why
