"""Every error that echomesh raises.

EchomeshError
├── UsageError (ValueError)          the caller's input can't be used; the message says what can
│   ├── BadName                      a nukleus or file name that is not one plain path segment
│   ├── BadTopic                     a topic name, filter or topic's file name that breaks the rules
│   ├── BadEvent                     an event that breaks the CloudEvents standard
│   │   ├── BadEventEncoding         bytes, JSON or headers that hold no event
│   │   └── BadEventData             data that is not of its datacontenttype
│   └── MessageTooLarge              a body over the limit of its ring, buffer or command
├── StorageError (OSError)           the file system refused
│   ├── StorageFull                  no room left (disk, /dev/shm)
│   └── FileGone                     a file that should be there is not
├── DamagedError                     bytes that are not what they should be
│   ├── RingDamaged                  a ring, broadcast or counters buffer with impossible values
│   ├── BadControlFile               a control file with a bad header or size
│   └── BadFrame                     a command, response or stream event that can't be decoded
├── ClosedError                      the thing was closed, or its process forked
├── BusyError                        somebody else holds what only one may hold
│   └── OwnerAlive                   a live process has this name
├── ViewKept (BufferError)           a handler kept a view of a ring beyond its call
├── Lapped                           a receiver was overtaken and lost messages
├── CountersFull                     no slot left in a counters buffer
├── CommandError                     a nukleus could not do a command
│   ├── CommandRefused               it answered ERROR
│   ├── CommandTimeout (TimeoutError) it did not answer in time
│   └── NukleusGone                  it is not running
├── StreamReset                      the peer gave the stream up
└── LogError                         the topic log
    ├── LogDamaged                   a file of the log whose header, size or content is wrong
    ├── LogCorrupt                   records that can't be read any more, by flipped bits or lost bytes
    ├── NotAnEvent                   a record that is whole, but whose bytes are no CloudEvent
    ├── OffsetsLost                  offsets that hold no event any more
    │   ├── OffsetGone               removed by retention
    │   └── HoleError                given out before an unclean stop, and lost with it
    ├── LogBehind                    an offset beyond the end, as when the directory was made anew
    ├── UnknownTopic (KeyError)      no such topic in the log
    ├── LogReadOnly                  appends are refused since the disk failed; reads go on
    ├── DiskFull                     no room for the event; try again when there is
    ├── LogBusy                      too many appends wait; await some of them
    ├── LogLocked                    another process writes to the directory
    ├── StaleWriter                  a staged epoch older than the writer's last one
    ├── FencedWriter                 a run that a newer one has replaced
    └── StageMissing                 a commit that names a stage which is not there, or not whole
"""

from __future__ import annotations

import reprlib


def _short(value: object) -> str:
    # What strangers send may be huge: it is cut before it is printed.
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
        super().__init__(f"{_short(name)} is not a {what}: {reason}")


class BadEvent(UsageError):
    """An event that breaks the CloudEvents standard, and the attribute in which it does."""

    def __init__(self, attribute: str, value: object, reason: str) -> None:
        self.attribute = attribute
        self.value = value
        self.reason = reason
        super().__init__(f"event attribute {_short(attribute)} = {_short(value)} {reason}")


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
        UsageError.__init__(self, f"event data of type {_short(datacontenttype)}: {reason}")


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


class LogError(EchomeshError):
    """The topic log can't do what was asked."""


class LogDamaged(LogError):
    """A file of the log that is not what it should be."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class LogCorrupt(LogError):
    """Records that can't be read any more: offsets `first` to `last`. They are never served."""

    def __init__(self, topic: str, first: int, last: int, path: str = "") -> None:
        self.topic = topic
        self.first = first
        self.last = last
        self.path = path
        where = f" in {path}" if path else ""
        super().__init__(
            f"topic {_short(topic)}: offsets {first} to {last} are corrupt{where}; skip them to go on at {last + 1}"
        )


class NotAnEvent(LogError):
    """A record that is whole, but whose bytes are no CloudEvent: it has no columns. Raw reads give it."""

    def __init__(self, topic: str, offset: int, reason: object) -> None:
        self.topic = topic
        self.first = self.last = self.offset = offset
        self.reason = reason
        super().__init__(
            f"topic {_short(topic)}: offset {offset} is no event: {reason}; skip it to go on at {offset + 1}"
        )


class OffsetsLost(LogError):
    """Offsets `first` to `last` hold no event any more."""

    why = "are lost"

    def __init__(self, topic: str, first: int, last: int) -> None:
        self.topic = topic
        self.first = first
        self.last = last
        super().__init__(
            f"topic {_short(topic)}: offsets {first} to {last} {self.why}; skip them to go on at {last + 1}"
        )


class OffsetGone(OffsetsLost):
    """Retention removed them before they were read."""

    why = "were removed by retention"


class HoleError(OffsetsLost):
    """They were given out at a level below `disk`, and lost in an unclean stop."""

    why = "were lost in an unclean stop"


class LogBehind(LogError):
    """A read that starts beyond the end: the directory may have been made anew."""

    def __init__(self, topic: str, offset: int, end: int) -> None:
        self.topic = topic
        self.offset = offset
        self.end = end
        super().__init__(f"topic {_short(topic)} ends at offset {end}, before {offset}: was its directory made anew?")


class UnknownTopic(LogError, KeyError):
    """No such topic in the log."""

    def __init__(self, topic: str, environment: str) -> None:
        self.topic = topic
        self.environment = environment
        super().__init__(f"no topic {_short(topic)} in environment {environment}")

    def __str__(self) -> str:
        return str(self.args[0])


class LogReadOnly(LogError):
    """Appends are refused since the disk failed; reads go on."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory} takes no appends: {reason}; check the disk, then open the log again")


class DiskFull(LogError):
    """There is no room for the event; appends work again as soon as there is."""

    def __init__(self, directory: str, wanted_bytes: int) -> None:
        self.directory = directory
        self.wanted_bytes = wanted_bytes
        super().__init__(f"no room in {directory} for {wanted_bytes} bytes: free some, or keep less (retention)")


class LogBusy(LogError):
    """More waits to be appended than the log takes in; `await log.room()` before the next."""

    def __init__(self, directory: str, waiting_bytes: int, limit_bytes: int) -> None:
        self.directory = directory
        self.waiting_bytes = waiting_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            f"{waiting_bytes} bytes wait for {directory}, of {limit_bytes} at the most: await earlier appends"
        )


class LogLocked(LogError):
    """Another process writes to the directory."""

    def __init__(self, directory: str, pid: int, command: str = "") -> None:
        self.directory = directory
        self.pid = pid
        self.command = command
        who = f"process {pid}" if pid > 0 else "another process"
        known = f" ({command})" if command else ""
        super().__init__(f"{directory} is written by {who}{known}: stop it, or only read")


class StaleWriter(LogError):
    """A staged epoch that is older than the writer's last one."""

    def __init__(self, writer: str, epoch: int, last_epoch: int) -> None:
        self.writer = writer
        self.epoch = epoch
        self.last_epoch = last_epoch
        super().__init__(f"writer {_short(writer)}: epoch {epoch} is older than its last one, {last_epoch}")


class FencedWriter(LogError):
    """A run that a newer run of the same writer has replaced."""

    def __init__(self, writer: str, run: str, newer_run: str) -> None:
        self.writer = writer
        self.run = run
        self.newer_run = newer_run
        super().__init__(f"writer {_short(writer)}: run {_short(run)} was replaced by run {_short(newer_run)}")


class StageMissing(LogError):
    """A commit that names a stage which is not there, or not whole; nothing of it was done."""

    def __init__(self, stage: str, reason: str) -> None:
        self.stage = stage
        self.reason = reason
        super().__init__(f"stage {_short(stage)}: {reason}")
