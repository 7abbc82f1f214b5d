"""What all publishers and subscribers of a process share in compiled code."""


cdef class Home:
    """The marks of one process: whether its nukleus is its own, and what happened since somebody looked."""

    def __cinit__(self):
        self.alive = True
