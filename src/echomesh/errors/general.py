"""Errors of every room, and of rings and nuklei."""

from __future__ import annotations

import reprlib


def short(value: object) -> str:
    """A value for a message: what strangers send may be huge, and is cut before it is printed."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= 80 else f"{value[:80]!r}..."
    return reprlib.repr(value)


class EchomeshError(Exception):
    """Base of all errors of echomesh: `except echomesh.EchomeshError` catches every one."""


class UsageError(EchomeshError, ValueError):
    """The caller's input can't be used."""


class BadName(UsageError):
    """A name that is not one plain path segment."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(
            f"{name!r} is not a name: use 1 to 255 bytes of letters, digits, '.', '_' or '-', not starting with a dot"
        )


class BadTopic(UsageError):
    """A topic name or filter that breaks the rules; `what` says which of them it was meant to be."""

    def __init__(self, name: object, reason: str, what: str = "topic") -> None:
        self.name = name
        self.reason = reason
        self.what = what
        super().__init__(f"{short(name)} is not a {what}: {reason}")


class BadEvent(UsageError):
    """An event that breaks the CloudEvents standard, and the attribute in which it does."""

    def __init__(self, attribute: str, value: object, reason: str) -> None:
        self.attribute = attribute
        self.value = value
        self.reason = reason
        super().__init__(f"event attribute {short(attribute)} = {short(value)} {reason}")


class BadEventEncoding(BadEvent):
    """Bytes, JSON or headers that hold no event; `size` is how many bytes there were."""

    def __init__(self, reason: str, size: int) -> None:
        self.attribute = ""
        self.value = None
        self.reason = reason
        self.size = size
        UsageError.__init__(self, f"{size} bytes are not an event: {reason}")


class BadEventData(BadEvent):
    """Data that is not, or can't be made, what its datacontenttype says."""

    def __init__(self, datacontenttype: str | None, reason: str) -> None:
        self.attribute = "data"
        self.value = None
        self.datacontenttype = datacontenttype
        self.reason = reason
        UsageError.__init__(self, f"event data of type {short(datacontenttype)}: {reason}")


class MessageTooLarge(UsageError):
    """A body over the limit of what should carry it."""

    def __init__(self, size: int, limit: int, what: str = "this ring") -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"{size} bytes are more than the {limit} that {what} takes: split it, or use a larger one")


class StorageError(EchomeshError, OSError):
    """The file system refused."""


class StorageFull(StorageError):
    """There is no room for a file."""


class FileGone(StorageError):
    """A file that should be there is not."""


class DamagedError(EchomeshError):
    """Bytes that are not what they should be."""


class RingDamaged(DamagedError):
    """A ring, broadcast or counters buffer holds impossible values."""


class BadControlFile(DamagedError):
    """A control file whose header or size is wrong."""


class BadFrame(DamagedError):
    """A command, response or stream event that can't be decoded."""


class ClosedError(EchomeshError):
    """It was closed, or belongs to the process this one was forked from."""


class BusyError(EchomeshError):
    """Somebody else holds what only one may hold at a time."""


class OwnerAlive(BusyError):
    """A live process has this name already."""

    def __init__(self, name: str, directory: str, pid: int) -> None:
        self.name = name
        self.directory = directory
        self.pid = pid
        who = f"process {pid}" if pid > 0 else "a live process"
        super().__init__(f"{name!r} in {directory} belongs to {who}: stop it or choose another name")


class ViewKept(EchomeshError, BufferError):
    """A handler kept a view of a ring beyond its call; keep `bytes(view)` instead."""


class Lapped(EchomeshError):
    """A receiver was overtaken by its transmitter and lost messages."""

    def __init__(self, lost_bytes: int) -> None:
        self.lost_bytes = lost_bytes
        super().__init__(
            f"overtaken by the transmitter: up to {lost_bytes} bytes of messages were lost; read more often"
        )


class CountersFull(EchomeshError):
    """No slot is left in a counters buffer."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        super().__init__(f"all {slots} counters are in use: free one, or make the buffers larger")


class CommandError(EchomeshError):
    """A nukleus could not do a command."""


class CommandRefused(CommandError):
    """The nukleus answered ERROR; `command` is what was refused."""

    def __init__(self, nukleus: str, command: object, hint: str = "") -> None:
        self.nukleus = nukleus
        self.command = command
        super().__init__(f"{nukleus} refused {command}" + (f": {hint}" if hint else ""))


class CommandTimeout(CommandError, TimeoutError):
    """The nukleus did not answer in time; it may still carry the command out."""

    def __init__(self, nukleus: str, command: object, timeout_s: float, hint: str = "") -> None:
        self.nukleus = nukleus
        self.command = command
        self.timeout_s = timeout_s
        super().__init__(f"no answer from {nukleus} to {command} in {timeout_s:g} s" + (f": {hint}" if hint else ""))


class NukleusGone(CommandError):
    """No nukleus of that name is running."""

    def __init__(self, nukleus: str, directory: str) -> None:
        self.nukleus = nukleus
        self.directory = directory
        super().__init__(f"no nukleus {nukleus!r} runs in {directory}: start it, or check the name and the directory")


class StreamReset(EchomeshError):
    """The peer gave the stream up, or is gone."""
