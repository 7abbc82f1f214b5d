"""Errors of the topic log."""

from __future__ import annotations

from echomesh.errors.general import EchomeshError, short


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
            f"topic {short(topic)}: offsets {first} to {last} are corrupt{where}; skip them to go on at {last + 1}"
        )


class NotAnEvent(LogError):
    """A record that is whole, but whose bytes are no CloudEvent: it has no columns. Raw reads give it."""

    def __init__(self, topic: str, offset: int, reason: object) -> None:
        self.topic = topic
        self.first = self.last = self.offset = offset
        self.reason = reason
        super().__init__(
            f"topic {short(topic)}: offset {offset} is no event: {reason}; skip it to go on at {offset + 1}"
        )


class OffsetsLost(LogError):
    """Offsets `first` to `last` hold no event any more."""

    why = "are lost"

    def __init__(self, topic: str, first: int, last: int) -> None:
        self.topic = topic
        self.first = first
        self.last = last
        super().__init__(
            f"topic {short(topic)}: offsets {first} to {last} {self.why}; skip them to go on at {last + 1}"
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
        super().__init__(f"topic {short(topic)} ends at offset {end}, before {offset}: was its directory made anew?")


class UnknownTopic(LogError, KeyError):
    """No such topic in the log."""

    def __init__(self, topic: str, environment: str) -> None:
        self.topic = topic
        self.environment = environment
        super().__init__(f"no topic {short(topic)} in environment {environment}")

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
        wanted = f" for {wanted_bytes} bytes" if wanted_bytes else ""
        super().__init__(f"no room in {directory}{wanted}: free some, or keep less (retention)")


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
        super().__init__(f"writer {short(writer)}: epoch {epoch} is older than its last one, {last_epoch}")


class FencedWriter(LogError):
    """A run that a newer run of the same writer has replaced."""

    def __init__(self, writer: str, run: str, newer_run: str) -> None:
        self.writer = writer
        self.run = run
        self.newer_run = newer_run
        super().__init__(f"writer {short(writer)}: run {short(run)} was replaced by run {short(newer_run)}")


class StageMissing(LogError):
    """A commit that names a stage which is not there, or not whole; nothing of it was done."""

    def __init__(self, stage: str, reason: str) -> None:
        self.stage = stage
        self.reason = reason
        super().__init__(f"stage {short(stage)}: {reason}")
