"""Commands and responses: what they are called, what they carry, and their bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from echomesh.errors import BadFrame, UsageError

_LONG = struct.Struct("<q")
RESPONSE = 0x40000000
ERROR = 0x40000000


@dataclass(frozen=True, slots=True)
class Message:
    """A command or response. Fields of type int are longs, those of type str are strings, in their order."""

    code: ClassVar[int]
    title: ClassVar[str]
    correlation: int

    def __str__(self) -> str:
        rest = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "correlation"]
        return " ".join([self.title, *rest])


@dataclass(frozen=True, slots=True)
class Named(Message):
    """A command about another nukleus."""

    nukleus: str


@dataclass(frozen=True, slots=True)
class Aimed(Named):
    """A command about a reference of another nukleus."""

    reference: int


@dataclass(frozen=True, slots=True)
class Referring(Message):
    """A message about one of this nukleus's references."""

    reference: int


class Capture(Named):
    """Read streams from a source."""

    code, title = 0x01, "CAPTURE"


class Uncapture(Named):
    """Read a source's streams no more."""

    code, title = 0x02, "UNCAPTURE"


class Route(Named):
    """Write streams to a destination."""

    code, title = 0x03, "ROUTE"


class Unroute(Named):
    """Write streams to a destination no more."""

    code, title = 0x04, "UNROUTE"


class Bind(Aimed):
    """Accept streams of a source."""

    code, title = 0x11, "BIND"


class Unbind(Referring):
    """Accept streams no more for a bind reference."""

    code, title = 0x12, "UNBIND"


class Prepare(Aimed):
    """Make ready to initiate streams to a destination."""

    code, title = 0x13, "PREPARE"


class Unprepare(Referring):
    """Initiate streams no more for a prepare reference."""

    code, title = 0x14, "UNPREPARE"


class Connect(Referring):
    """Initiate a stream for a prepare reference."""

    code, title = 0x21, "CONNECT"


class Refused(Message):
    """The command could not be done."""

    code, title = ERROR, "ERROR"


class Captured(Message):
    """CAPTURE was done."""

    code, title = RESPONSE | 0x01, "CAPTURED"


class Uncaptured(Message):
    """UNCAPTURE was done."""

    code, title = RESPONSE | 0x02, "UNCAPTURED"


class Routed(Message):
    """ROUTE was done."""

    code, title = RESPONSE | 0x03, "ROUTED"


class Unrouted(Message):
    """UNROUTE was done."""

    code, title = RESPONSE | 0x04, "UNROUTED"


class Bound(Referring):
    """BIND was done: the bind reference."""

    code, title = RESPONSE | 0x11, "BOUND"


class Unbound(Message):
    """UNBIND was done."""

    code, title = RESPONSE | 0x12, "UNBOUND"


class Prepared(Referring):
    """PREPARE was done: the prepare reference."""

    code, title = RESPONSE | 0x13, "PREPARED"


class Unprepared(Message):
    """UNPREPARE was done."""

    code, title = RESPONSE | 0x14, "UNPREPARED"


class Connected(Referring):
    """CONNECT was done: the stream id."""

    code, title = RESPONSE | 0x21, "CONNECTED"


COMMANDS: dict[int, type[Message]] = {
    kind.code: kind for kind in (Capture, Uncapture, Route, Unroute, Bind, Unbind, Prepare, Unprepare, Connect)
}
RESPONSES: dict[int, type[Message]] = {
    kind.code: kind
    for kind in (Refused, Captured, Uncaptured, Routed, Unrouted, Bound, Unbound, Prepared, Unprepared, Connected)
}

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """The body of a message; the code travels as the record's type."""
    parts = []
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, str):
            text = value.encode()
            if not 1 <= len(text) <= 255:
                raise UsageError(f"{field.name} has {len(text)} bytes, where 1 to 255 can be sent")
            parts.append(bytes([len(text)]) + text)
        else:
            if not -(1 << 63) <= value < 1 << 63:
                raise UsageError(f"{field.name} {value} is no 64-bit number")
            parts.append(_LONG.pack(value))
    return b"".join(parts)


def correlation_of(body: bytes) -> int | None:
    """The correlation id of a body that may be anything."""
    return int(_LONG.unpack_from(body)[0]) if len(body) >= _LONG.size else None


def decode(code: int, body: bytes, known: dict[int, type[Message]]) -> Message:
    """The message of this code and body, or `BadFrame`."""
    kind = known.get(code)
    if kind is None:
        raise BadFrame(f"no message has the code {code:#010x}")
    values: list[int | str] = []
    at = 0
    for field in fields(kind):
        if field.type in ("str", str):
            end = at + 1 + (body[at] if at < len(body) else 0)
            if at >= len(body) or end > len(body) or end == at + 1:
                raise BadFrame(f"{kind.title}: {field.name} is missing, empty or cut off")
            try:
                values.append(body[at + 1 : end].decode())
            except UnicodeDecodeError:
                raise BadFrame(f"{kind.title}: {field.name} is not UTF-8") from None
        else:
            end = at + _LONG.size
            if end > len(body):
                raise BadFrame(f"{kind.title}: {field.name} is cut off")
            values.append(_LONG.unpack_from(body, at)[0])
        at = end
    if at != len(body):
        raise BadFrame(f"{kind.title}: {len(body) - at} bytes too many")
    return kind(*values)  # type: ignore[arg-type]  # the loop above followed the fields' types
