"""What happens on a client's connection, as `ClientCore` tells it."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from echomesh.errors import EchomeshError, MeshError
from echomesh.mesh.bodies import Body, Server
from echomesh.mesh.client_acks import TopicAcks


class Up(Struct, gc=False):
    """The server has accepted HELLO, and what waited for that was sent; `anew` if its log is not the one of before."""

    session_id: str
    log_id: bytes | None
    anew: bool


class Stored(Struct):
    """Publishes that are on disk: what they were called, and their offsets."""

    tokens: list[Any]
    offsets: list[int]


class Answered(Struct):
    """A request was done."""

    token: Any
    body: Body | None


class Refused(Struct):
    """A request was refused, or the connection broke before its answer.

    With `resumed`, it is the subscription of this token that could not be made again on a new connection.
    """

    token: Any
    error: EchomeshError
    resumed: bool = False


class Delivery(Struct):
    """Events of one topic, consecutive from `first` on; or none, and `lost`, what can't be had any more."""

    acks: TopicAcks
    generation: int
    first: int
    events: list[Raw]
    lost: tuple[int, int] | None = None
    tries: int = 1
    via: tuple[Server, ...] = ()
    owner: Any = None

    @property
    def topic(self) -> str:
        """Where they were published."""
        return self.acks.topic


class Told(Struct, gc=False):
    """The server says something unasked: `taken-over` (with topics) or `stopping`."""

    kind: str
    topics: list[str]


class Broken(Struct, gc=False):
    """The connection is of no use any more; with `final`, another one would not be either.

    With `stalled` the server was there, and did not answer.
    """

    error: MeshError
    final: bool = False
    stalled: bool = False


class Ended(Struct, gc=False):
    """The server has ended the session, as it was asked to."""


Happening = Up | Stored | Answered | Refused | Delivery | Told | Broken | Ended
