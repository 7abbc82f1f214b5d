"""Errors of publishers and subscribers: what was not delivered, or can't be."""

from __future__ import annotations

from collections.abc import Sequence

from echomesh.errors.data import DataError
from echomesh.errors.general import ClosedError, DamagedError, UsageError


class SlowSubscriber(DataError, TimeoutError):
    """A message could not be given to some subscribers in time; the others have it."""

    def __init__(self, topic: str, sequence: int, timeout_s: float, subscribers: Sequence[str], why: str) -> None:
        self.topic = topic
        self.sequence = sequence
        self.timeout_s = timeout_s
        self.subscribers = tuple(subscribers)
        super().__init__(
            f"message {sequence} of {topic!r} was given up after {timeout_s:g} s for {len(self.subscribers)} "
            f"subscribers ({', '.join(self.subscribers) or 'none'}): {why}; "
            "read faster there, wait longer (timeout), or choose slow='drop oldest' or 'latest'"
        )


class MessagesLost(DataError):
    """Messages that will not come, by their exact numbers; the next call goes on behind them."""

    def __init__(self, topic: str, publisher: bytes, first: int, last: int, reason: str) -> None:
        self.topic = topic
        self.publisher = publisher
        self.first = first
        self.last = last
        self.reason = reason
        super().__init__(f"messages {first} to {last} of {topic!r} from {publisher.hex()} were lost: {reason}")


class NothingCame(DataError, TimeoutError):
    """No message, subscriber or reply came in time."""


class NotARequest(DataError, UsageError):
    """A reply to a message that nobody waits for an answer to."""


class Forked(ClosedError):
    """It belongs to the process that this one was forked from; make a new one here."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this {what} belongs to the process that this one was forked from: make a new one here")


class BadRecording(DataError, DamagedError):
    """A file that is no recording, or is cut off."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} can't be read as MCAP: {reason}; was it closed? `mcap recover` may mend it")


class MissingPackage(DataError, UsageError):
    """A package that only some commands need."""

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        super().__init__(f"{what} need the package {package}: pip install {package}")
