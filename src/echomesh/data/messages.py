"""Every message between participants, publishers and subscribers.

A message is a MessagePack array: its name, then its fields in their order. What stands in braces in the protocol is a
map. New fields come last, or under new names, with a default: who does not know them leaves them alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct, field

VERSION: Final = 1

Id: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
Name: TypeAlias = Annotated[str, Meta(max_length=255)]
Secret: TypeAlias = Annotated[bytes, Meta(max_length=64)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Reason(StrEnum):
    """Why a publisher, subscriber or onlooker was refused."""

    VERSION = "wrong version"
    DOMAIN = "wrong domain"
    TOPIC = "bad topic"
    COOKIE = "not authorised"
    FULL = "too many"


class Path(StrEnum):
    """How messages get from a publisher to a subscriber."""

    NONE = "none"
    SHARED_MEMORY = "shm"


class Endpoint(Struct, frozen=True, gc=False):
    """A publisher or a subscriber; the topic of a subscriber may be a filter."""

    id: Id
    topic: str
    port: Port = 0


class Gone(Struct, frozen=True, gc=False):
    """Who is no more."""

    id: Id


class Reachable(Struct, frozen=True, gc=False):
    """A subscriber, as its publishers know it."""

    id: Id
    ip: Annotated[str, Meta(max_length=64)]
    port: Port = 0


class Wired(Struct, frozen=True, gc=False, omit_defaults=True):
    """A stream that is up, as its publisher tells it to a participant that was started anew."""

    id: Id
    nukleus: Name
    stream: Count
    prepared: Count
    bound: Count
    reference: Count


class _Message(Struct, frozen=True, array_like=True, gc=False):
    """A message: an array that begins with its name."""


# Beacon


class Hello(_Message, frozen=True, tag="Beacon.Hello"):
    """I'm a participant, you can connect to me at port."""

    port: Port
    version: int
    domain: Name
    id: Id
    started: Count
    """Nanoseconds since 1970: of two with one id, the later one is the restarted one."""


# PartToPart


class PartInit(_Message, frozen=True, tag="PartToPart.Init"):
    """I'm new here, these are my publishers and subscribers."""

    publishers: list[Endpoint]
    subscribers: list[Endpoint]
    hello: Hello


class PartInsertPublisher(_Message, frozen=True, tag="PartToPart.InsertPublisher"):
    """I have a new publisher."""

    publisher: Endpoint


class PartRemovePublisher(_Message, frozen=True, tag="PartToPart.RemovePublisher"):
    """I have one publisher less."""

    publisher: Endpoint


class PartInsertSubscriber(_Message, frozen=True, tag="PartToPart.InsertSubscriber"):
    """I have a new subscriber."""

    subscriber: Endpoint


class PartRemoveSubscriber(_Message, frozen=True, tag="PartToPart.RemoveSubscriber"):
    """I have one subscriber less."""

    subscriber: Gone


# PartToPub


class PubInit(_Message, frozen=True, tag="PartToPub.Init"):
    """These are the current subscribers; those that a stream is made for first come one by one."""

    subscribers: list[Reachable]
    coming: list[Id] = field(default_factory=list)
    """Whom a stream is made for: each is inserted once it is there, or removed."""


class PubInitFailed(_Message, frozen=True, tag="PartToPub.InitFailed"):
    """Cannot initialize."""

    reason: Reason
    detail: str = ""


class PubInsertSubscriber(_Message, frozen=True, tag="PartToPub.InsertSubscriber"):
    """There is a new subscriber for you.

    With the path `shm` a stream to it is open: `stream` is its id at the publisher's nukleus, `nukleus` is the
    subscriber's, and the rest says how it was wired.
    """

    subscriber: Reachable
    path: Path = Path.NONE
    nukleus: Name = ""
    stream: Count = 0
    prepared: Count = 0
    bound: Count = 0
    reference: Count = 0


class PubRemoveSubscriber(_Message, frozen=True, tag="PartToPub.RemoveSubscriber"):
    """There is one subscriber less for you."""

    subscriber: Gone


# PartToSub


class SubInit(_Message, frozen=True, tag="PartToSub.Init"):
    """Ok."""


class SubInitFailed(_Message, frozen=True, tag="PartToSub.InitFailed"):
    """Cannot initialize."""

    reason: Reason
    detail: str = ""


class SubInsertPublisher(_Message, frozen=True, tag="PartToSub.InsertPublisher"):
    """There is a new publisher for you.

    With the path `shm` its nukleus will begin a stream that names a BIND with this reference as its source reference;
    the participant makes it once the subscriber has answered `ToPart.Ready`.
    """

    publisher: Endpoint
    ip: Annotated[str, Meta(max_length=64)] = ""
    path: Path = Path.NONE
    nukleus: Name = ""
    reference: Count = 0


class SubRemovePublisher(_Message, frozen=True, tag="PartToSub.RemovePublisher"):
    """There is one publisher less for you."""

    publisher: Gone


# ToPart


class Credentials(Struct, frozen=True, gc=False):
    """What whoever connects to the local listener shows: `cookie` is in the user's own directory."""

    cookie: Secret
    domain: Name
    version: int = VERSION


class Process(Struct, frozen=True, gc=False):
    """Where the process of a publisher or subscriber is.

    `proof` stands in a file beside the control file of its nukleus. Only who finds it there shares memory with it.
    """

    nukleus: Name = ""
    directory: Annotated[str, Meta(max_length=4096)] = ""
    proof: Secret = b""
    pid: Count = 0


class InitPub(_Message, frozen=True, tag="ToPart.InitPub"):
    """I publish this topic."""

    topic: str
    id: Id
    credentials: Credentials
    process: Process
    options: dict[str, Any] = field(default_factory=dict)
    wired: list[Wired] = field(default_factory=list)


class InitSub(_Message, frozen=True, tag="ToPart.InitSub"):
    """I subscribe to this topic."""

    subscriber: Endpoint
    credentials: Credentials
    process: Process
    options: dict[str, Any] = field(default_factory=dict)


class Ready(_Message, frozen=True, tag="ToPart.Ready"):
    """The publisher of this reference is known here: its stream may begin."""

    reference: Count


class Lost(_Message, frozen=True, tag="ToPart.Lost"):
    """The stream of this reference was reset, and its subscriber is there still: another one is wanted."""

    reference: Count


class InitLook(_Message, frozen=True, tag="ToPart.InitLook"):
    """I only want to know who is there."""

    credentials: Credentials


# PartToLook: for onlookers


class Seen(Struct, frozen=True, gc=False):
    """A participant, as another one knows it; `silent_ms` is how long ago it was heard."""

    hello: Hello
    ip: str
    silent_ms: int
    linked: bool
    publishers: list[Endpoint]
    subscribers: list[Endpoint]


class LookInit(_Message, frozen=True, tag="PartToLook.Init"):
    """These are the participants that I know, myself first."""

    participants: list[Seen]
    counters: dict[str, int] = field(default_factory=dict)


class LookInitFailed(_Message, frozen=True, tag="PartToLook.InitFailed"):
    """You may not know."""

    reason: Reason
    detail: str = ""


PartToPart: TypeAlias = (
    PartInit | PartInsertPublisher | PartRemovePublisher | PartInsertSubscriber | PartRemoveSubscriber | Hello
)
"""A `Hello` on a connection says that the other end is alive."""
PartToPub: TypeAlias = PubInit | PubInitFailed | PubInsertSubscriber | PubRemoveSubscriber
PartToSub: TypeAlias = SubInit | SubInitFailed | SubInsertPublisher | SubRemovePublisher
ToPart: TypeAlias = InitPub | InitSub | InitLook | Ready | Lost
PartToLook: TypeAlias = LookInit | LookInitFailed
PartToLocal: TypeAlias = PartToPub | PartToSub | PartToLook
Message: TypeAlias = PartToPart | PartToLocal | ToPart
