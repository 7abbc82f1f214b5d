"""Requests and their answers, over the same paths as all messages.

A request tells a topic of the one who asks, and a number; the answer is published there with that number. Both travel
as the prefix of a message.
"""

from __future__ import annotations

import secrets
import struct
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final, Generic, TypeVar

from echomesh.data.incoming import RESERVED, Incoming
from echomesh.errors import BadTopic, NotARequest
from echomesh.native.data_message import Message
from echomesh.topics import parse_topic

REQUEST: Final = 1
REPLY: Final = 2
TIMEOUT_S: Final = 30.0
MATCH_S: Final = 5.0
"""For how long an answer waits for who asked."""
_NUMBER: Final = struct.Struct("<q")
_MOST_ANSWERS: Final = 1024
_MOST_ROUTES: Final = 256

P = TypeVar("P")


def asked(message: Message) -> tuple[str, bytes]:
    """Where the answer to a request goes, and the prefix that it has."""
    prefix = message.prefix
    if not message.flags & REQUEST or len(prefix) <= _NUMBER.size:
        raise NotARequest(f"{message!r} is no request: nobody waits for a reply")
    try:
        topic = parse_topic(prefix[_NUMBER.size :].decode())
    except (UnicodeDecodeError, BadTopic):
        topic = ""
    if not topic.startswith(RESERVED):
        raise NotARequest(f"{message!r} wants its reply where none may go")
    return topic, prefix[: _NUMBER.size]


class Answers:
    """The answers to what one mesh asked, as they come in on a topic of its own."""

    def __init__(self) -> None:
        self.topic = RESERVED + secrets.token_hex(16)
        self._numbers = count(1)
        self._waiting: dict[int, Message | None] = {}

    def ask(self) -> tuple[int, bytes]:
        """The number of a new request, and its prefix."""
        number = next(self._numbers)
        self._waiting[number] = None
        return number, _NUMBER.pack(number) + self.topic.encode()

    def ready(self, number: int, inbox: Incoming) -> Callable[[], bool]:
        """Whether the answer has come."""

        def ready() -> bool:
            for message in inbox.take_many(_MOST_ANSWERS):
                prefix = message.prefix
                if message.flags & REPLY and len(prefix) == _NUMBER.size:
                    (to,) = _NUMBER.unpack(prefix)
                    if self._waiting.get(to, message) is None:  # the first one counts
                        self._waiting[to] = message
            return self._waiting.get(number) is not None

        return ready

    def take(self, number: int) -> Message | None:
        """The answer, if it came; later ones are nobody's."""
        return self._waiting.pop(number, None)


class Routes(Generic[P]):
    """Publishers that were made for answers or requests, by topic: the latest used ones are kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, P] = OrderedDict()

    def get(self, topic: str) -> P | None:
        """The one for a topic."""
        found = self._known.get(topic)
        if found is not None:
            self._known.move_to_end(topic)
        return found

    def add(self, topic: str, publisher: P) -> P | None:
        """Keeps one more, and gives one that is to be closed."""
        self._known[topic] = publisher
        return self._known.popitem(last=False)[1] if len(self._known) > _MOST_ROUTES else None

    def drop(self, topic: str) -> P | None:
        """Keeps it no longer."""
        return self._known.pop(topic, None)

    def all(self) -> list[P]:
        """All of them."""
        return list(self._known.values())
