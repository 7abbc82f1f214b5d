"""Event: a CloudEvent 1.0 that is checked when it is made, and encoded and decoded in about a microsecond."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr

from echomesh.errors import BadEvent, BadEventData
from echomesh.events import formats, rules, wire
from echomesh.events.rules import NO_EXTENSIONS, SPECVERSION, Attribute

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

_known_sources: Final = rules.known_sources.values
_known_types: Final = rules.known_types.values
_known_media_types: Final = rules.known_media_types.values

_BY_DATA: Final = "chosen by the type of data"

# A generator of its own: a user's random.seed() must not make two processes count out the same ids.
_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)


def new_id() -> str:
    """A UUID of version 7: unique, and in the order of time (to a quarter of a microsecond)."""
    ms, ns = divmod(time_ns(), 1_000_000)
    noise = _random.getrandbits(62)
    fraction = ns * 4096 // 1_000_000
    high, low = 0x8000 | noise >> 48, noise & 0xFFFF_FFFF_FFFF
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{fraction:03x}-{high:04x}-{low:012x}"


def _now() -> datetime:
    return datetime.now(UTC)


class _Stored:
    """Data as it was received: kept as it is, since what others store is not judged by its type."""

    __slots__ = ("payload",)

    def __init__(self, payload: object) -> None:
        self.payload = payload


class _Fields(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    type: str
    source: str
    data: Any = None
    id: str = msgspec.field(default_factory=new_id)
    time: datetime | None = msgspec.field(default_factory=_now)
    subject: str | None = None
    datacontenttype: str | None = _BY_DATA
    dataschema: str | None = None
    extensions: Mapping[str, Attribute] = NO_EXTENSIONS
    specversion: str = SPECVERSION


# `Event.data` is a property over the field of the same name, which these two reach.
_get_payload = _Fields.data.__get__
_set_payload = _Fields.data.__set__


class Event(_Fields, frozen=True, kw_only=True, dict=True):
    """Something that happened: a CloudEvent 1.0, immutable, checked against the standard.

    >>> event = Event(type="order.created", source="/shop", data={"id": 7})
    >>> event.data, event.datacontenttype
    ({'id': 7}, 'application/json')
    >>> Event.decode(event.encode()) == event
    True

    Parameters
    ----------
    type, source
        What happened (`order.created`) and where (a URI-reference such as `/shop`).
    data
        Bytes and text travel as they are: their `datacontenttype` is `application/octet-stream` and
        `text/plain` unless you name another one. Anything else is written as JSON (`application/json`):
        dicts, lists, numbers, dataclasses, msgspec structs. Text with a JSON type is the JSON document.
    id
        Unique within the source; a new UUID when you give none. Same source and id means the same event.
    time
        When it happened: a datetime with a time zone or an RFC 3339 string; now by default, None for no time.
    subject, dataschema
        What within the source it is about, and the absolute URI of the schema of data.
    datacontenttype
        The media type of data; None leaves it out.
    extensions
        More attributes: names of a-z and 0-9; values bool, int (32 bits), str, bytes or datetime.

    A change makes a new event: `msgspec.structs.replace(event, subject="7")`.
    """

    def __post_init__(self) -> None:
        # Every event that comes or goes passes here: the usual case is decided in place, without a call.
        if self.specversion != SPECVERSION:
            raise BadEvent("specversion", self.specversion, f"must be {SPECVERSION!r}")
        text: Any = self.id
        if not (text.__class__ is str and text and text.isprintable()):
            rules.check_text("id", text)
        text = self.source
        if text.__class__ is not str or text not in _known_sources:
            rules.check_source(text)
        text = self.type
        if text.__class__ is not str or text not in _known_types:
            rules.check_type(text)
        if self.subject is not None:
            rules.check_text("subject", self.subject)
        if self.dataschema is not None:
            rules.check_dataschema(self.dataschema)
        if self.extensions is not NO_EXTENSIONS:
            force_setattr(self, "extensions", rules.check_extensions(self.extensions))
        time: Any = self.time
        if time is not None and not (time.__class__ is datetime and time.tzinfo is UTC):
            force_setattr(self, "time", rules.timestamp("time", time))
        text = self.datacontenttype
        if text is _BY_DATA:
            text = _default_type(_get_payload(self))
            force_setattr(self, "datacontenttype", text)
        elif text is not None and (text.__class__ is not str or text not in _known_media_types):
            rules.check_media_type(text)
        value = _get_payload(self)
        if value.__class__ is not bytes and value is not None:
            _set_payload(self, _to_payload(value, text))

    @property  # type: ignore[misc]  # it stands before the field, on purpose
    def data(self) -> Any:
        """What happened, in your terms: the JSON value where `datacontenttype` says JSON, else bytes or str.

        JSON is decoded when you first look. Data that is no JSON although its type says so raises
        `BadEventData`; `payload` has it in any case.
        """
        if (payload := _get_payload(self)) is None or not rules.is_json(self.datacontenttype):
            return payload
        try:
            return self.__dict__["value"]
        except KeyError:
            return self.__dict__.setdefault("value", formats.decode_json(payload))

    @property
    def payload(self) -> bytes | str | None:
        """Data as it travels and is stored: bytes or text, never decoded."""
        return _get_payload(self)  # type: ignore[no-any-return]

    def encode(self) -> bytes:
        """The MessagePack bytes of this event. A decoded event gives exactly the bytes that it came from."""
        try:
            return self.__dict__["wire"]  # type: ignore[no-any-return]
        except KeyError:
            pass
        attributes: dict[str, Any] = {
            "specversion": SPECVERSION,
            "id": self.id,
            "source": self.source,
            "type": self.type,
        }
        if self.datacontenttype is not None:
            attributes["datacontenttype"] = self.datacontenttype
        if self.dataschema is not None:
            attributes["dataschema"] = self.dataschema
        if self.subject is not None:
            attributes["subject"] = self.subject
        if self.time is not None:
            attributes["time"] = self.time
        # Sorted, so that equal events have equal bytes.
        if self.extensions is not NO_EXTENSIONS:
            for name in sorted(self.extensions):
                attributes[name] = self.extensions[name]
        if (payload := _get_payload(self)) is not None:
            attributes["data"] = payload
        encoded = self.__dict__["wire"] = wire.encode(attributes)
        return encoded

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview) -> Event:
        """The event in these MessagePack bytes; raises `BadEvent` for anything that is not one.

        Bytes are kept, other buffers copied: the event may outlive them.
        """
        stored = buffer if buffer.__class__ is bytes else bytes(memoryview(buffer))
        if (plain := wire.decode_plain(stored)) is not None:
            known, time, payload = plain
            event = cls(
                type=known.type,
                source=known.source,
                data=payload if payload.__class__ is bytes or payload is None else _Stored(payload),
                id=known.id,
                time=time,
                subject=known.subject,
                datacontenttype=known.datacontenttype,
                dataschema=known.dataschema,
            )
        else:
            attributes = wire.decode(stored)
            event = cls._of(attributes, attributes.pop("data", None))
        event.__dict__["wire"] = stored
        return event

    def attributes(self) -> dict[str, Attribute]:
        """Every attribute that is set, extensions included, in native types."""
        found: dict[str, Attribute] = {
            "specversion": SPECVERSION,
            "id": self.id,
            "source": self.source,
            "type": self.type,
        }
        for name in rules.OPTIONAL:
            if (value := getattr(self, name)) is not None:
                found[name] = value
        found.update(self.extensions)
        return found

    def canonical_attributes(self) -> dict[str, str]:
        """Every attribute that is set, in the standard's string form: `true`, `-7`, base64, RFC 3339."""
        return {name: rules.canonical(value) for name, value in self.attributes().items()}

    def canonical_extensions(self) -> dict[str, str]:
        """The extensions alone in that form: the column `attributes` of the Spark source."""
        return {name: rules.canonical(value) for name, value in self.extensions.items()}

    def to_json(self) -> bytes:
        """The official JSON format, on one line: JSON data as a value, text as a string, bytes in base64."""
        return formats.to_json(self.attributes(), self.payload)

    @classmethod
    def from_json(cls, text: bytes | str) -> Event:
        """The event in the official JSON format; data comes as JSON bytes, text, or bytes (`data_base64`)."""
        return cls._of(*formats.from_json(text))

    def to_http(self) -> tuple[dict[str, str], bytes]:
        """Headers (`ce-id`, ..., `content-type`) and body of a binary-mode HTTP message."""
        return formats.to_http(self.attributes(), self.payload)

    @classmethod
    def from_http(cls, headers: Mapping[str, str], body: bytes) -> Event:
        """The event in an HTTP message, binary or structured. Headers know no types, only strings."""
        return cls._of(*formats.from_http(headers, body))

    def to_cloudevent(self) -> BaseCloudEvent:
        """This event as a `cloudevents.core.v1.event.CloudEvent` of the CloudEvents SDK."""
        return formats.to_sdk(self.attributes(), self.payload)

    @classmethod
    def from_cloudevent(cls, event: BaseCloudEvent) -> Event:
        """The event in an object of the CloudEvents SDK."""
        return cls._of(*formats.from_sdk(event))

    @classmethod
    def _of(cls, attributes: dict[str, Any], payload: Any) -> Event:
        """The event of attributes and payload as received: nothing is made up for what is missing."""
        pop = attributes.pop
        try:
            return cls(
                specversion=pop("specversion"),
                id=pop("id"),
                source=pop("source"),
                type=pop("type"),
                datacontenttype=pop("datacontenttype", None),
                dataschema=pop("dataschema", None),
                subject=pop("subject", None),
                time=pop("time", None),
                data=payload if payload.__class__ is bytes or payload is None else _Stored(payload),
                extensions=attributes or NO_EXTENSIONS,
            )
        except KeyError as missing:
            raise BadEvent(missing.args[0], None, "is missing: every event has it") from None

    def __hash__(self) -> int:
        return hash((self.source, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return Event.decode, (self.encode(),)


def _default_type(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return "application/octet-stream"
    return "text/plain" if isinstance(value, str) else formats.JSON


def _to_payload(value: Any, datacontenttype: str | None) -> bytes | str:
    if isinstance(value, _Stored):
        if not isinstance(value.payload, bytes | str):
            raise BadEvent("data", value.payload, "must be bin or str")
        return value.payload
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return _check_text(str(value), datacontenttype)
    if rules.is_json(datacontenttype):
        return formats.encode_json(value)
    kind = type(value).__name__
    raise BadEventData(datacontenttype, f"a {kind} is written as JSON only: give bytes or str, or a JSON type")


def _check_text(text: str, datacontenttype: str | None) -> str:
    if rules.is_json(datacontenttype):
        try:
            formats.decode_json(text)
        except BadEventData:
            raise BadEventData(
                datacontenttype, "the text is no JSON document: for a JSON string give json.dumps(text)"
            ) from None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadEventData(datacontenttype, f"the text has no UTF-8 form: {error.reason}") from None
    return text
