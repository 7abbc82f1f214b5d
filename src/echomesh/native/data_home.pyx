"""What all publishers and subscribers of a process share in compiled code."""


cdef class Home:
    """The marks of one process: whether its nukleus is its own, and what happened since somebody looked."""

    def __cinit__(self):
        self.alive = True


cdef class Awaited:
    """Something that threads wait for."""

    cdef bint came(self) except -1:
        return True
