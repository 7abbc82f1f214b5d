class Home:
    """The marks of one process: whether its nukleus is its own, and what happened since somebody looked."""

    alive: bool
    """False once the process forked, or closed its nukleus."""
    activity: int
    """Goes up with each message that a thread sends or waits for."""
    credited: int
    """Goes up when a subscriber gave credit, or gave back part of a pool."""
    owing: bool
    """Set when credit or releases found no room and are to be written later."""
    lagging: bool
    """Set when messages wait in queues for credit or room."""

class Awaited:
    """Something that threads wait for."""
