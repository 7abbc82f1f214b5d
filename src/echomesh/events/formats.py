"""The other forms of an event: the official JSON format, binary-mode HTTP, the CloudEvents SDK's objects.

Each works on a map of attributes and a payload, and knows nothing of `Event`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Raw

from echomesh.errors import BadEvent, BadEventData, BadEventEncoding, UsageError
from echomesh.events.rules import MAX_ATTRIBUTES, Attribute, canonical, check_media_type, is_json

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

JSON: Final = "application/json"
JSON_EVENT: Final = "application/cloudevents+json"

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)

# Every printable ASCII character but space, '"' and '%' (HTTP binding, 3.1.3.2).
_HEADER_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def encode_json(value: Any) -> bytes:
    """JSON text for any value; what JSON has no form for is refused, not changed."""
    try:
        text = _encode(value)
    except (TypeError, *_MALFORMED) as error:
        raise BadEventData(JSON, f"can't be written as JSON: {error}") from None
    # The encoder writes NaN and the infinities as null: that would change the data in silence.
    if b"null" in text and _has_no_json_form(value):
        raise BadEventData(JSON, "NaN and infinity have no JSON form: use None or a string")
    return text


def decode_json(payload: bytes | str) -> Any:
    """The value of JSON text."""
    try:
        return _decode(payload)
    except _MALFORMED as error:
        raise BadEventData(JSON, f"is no JSON: {error}") from None


def to_json(attributes: Mapping[str, Attribute], payload: bytes | str | None) -> bytes:
    """One line of the JSON format: data as a JSON value or string, bytes as `data_base64`."""
    members: dict[str, Any] = {
        name: value if isinstance(value, bool | int) else canonical(value) for name, value in attributes.items()
    }
    if payload is None:
        return _encode(members)
    datacontenttype = members.get("datacontenttype")
    if is_json(datacontenttype) and (text := _one_line(payload)) is not None:
        members["data"] = Raw(text)
    elif isinstance(payload, str) and not is_json(datacontenttype):
        # Without a type JSON readers would take the text for a JSON value.
        members.setdefault("datacontenttype", "text/plain")
        members["data"] = payload
    else:
        raw = payload.encode() if isinstance(payload, str) else payload
        members["data_base64"] = base64.b64encode(raw).decode("ascii")
    return _encode(members)


def from_json(text: bytes | str) -> tuple[dict[str, Any], bytes | str | None]:
    """The attributes and the payload of an event in the JSON format."""
    try:
        members = _decode_object(text)
        if len(members) > MAX_ATTRIBUTES:
            raise BadEventEncoding(f"{len(members)} members are over the limit of {MAX_ATTRIBUTES}", len(text))
        data, encoded = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _scalar(name, raw) for name, raw in members.items()}
        encoded_text = None if encoded is None else _scalar("data_base64", encoded)
    except _MALFORMED as error:
        if isinstance(error, BadEvent):
            raise
        raise BadEventEncoding(f"no JSON object: {error}", len(text)) from None
    attributes = {name: value for name, value in attributes.items() if value is not None}
    if encoded_text is not None:
        if data is not None:
            raise BadEvent("data_base64", encoded_text, "and data exclude each other")
        return attributes, _from_base64(encoded_text)
    if data is None:
        return attributes, None
    if is_json(_declared(attributes)):
        return attributes, bytes(data)
    value = decode_json(memoryview(data).tobytes())
    if not isinstance(value, str):
        raise BadEventData(attributes["datacontenttype"], "must be a JSON string, or come as data_base64")
    return attributes, value


def _declared(attributes: dict[str, Any]) -> str:
    """The type of data that came without saying how it is written: JSON, unless another one is named."""
    datacontenttype: str = attributes.setdefault("datacontenttype", JSON)
    check_media_type(datacontenttype)
    return datacontenttype


def to_http(attributes: Mapping[str, Attribute], payload: bytes | str | None) -> tuple[dict[str, str], bytes]:
    """Headers and body of a binary-mode HTTP message."""
    headers = {
        f"ce-{name}": quote(canonical(value), safe=_HEADER_SAFE)
        for name, value in attributes.items()
        if name != "datacontenttype"
    }
    datacontenttype = attributes.get("datacontenttype")
    if datacontenttype is None and isinstance(payload, str):
        datacontenttype = "text/plain"
    if datacontenttype is not None:
        headers["content-type"] = str(datacontenttype)
    return headers, payload.encode() if isinstance(payload, str) else payload or b""


def from_http(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], bytes | str | None]:
    """The attributes and the payload of an HTTP message, binary (attributes are strings) or structured."""
    attributes: dict[str, Any] = {}
    for header, value in headers.items():
        name = header.lower()
        if name == "content-type":
            if value.lower().startswith(JSON_EVENT):
                return from_json(body)
            attributes["datacontenttype"] = value
        elif name == "ce-datacontenttype":
            raise BadEvent("datacontenttype", value, "must come as the header content-type")
        elif name.startswith("ce-"):
            attributes[name[3:]] = _header_value(name[3:], value)
    return attributes, body or None


def to_sdk(attributes: Mapping[str, Attribute], payload: bytes | str | None) -> BaseCloudEvent:
    """A `CloudEvent` of the SDK; JSON data is given to it as a value."""
    try:
        from cloudevents.core.v1.event import CloudEvent
    except ImportError:
        raise UsageError("the CloudEvents SDK is not installed: pip install 'echomesh[node]'") from None
    # The SDK's JSON and HTTP writers know no bytes in attributes, but the standard's string form will do.
    native: dict[str, Any] = {
        name: canonical(value) if isinstance(value, bytes) else value for name, value in attributes.items()
    }
    if isinstance(payload, str) and "datacontenttype" not in native:
        native["datacontenttype"] = "text/plain"
    data: Any = payload
    if payload is not None and is_json(native.get("datacontenttype")):
        try:
            data = _decode(payload)
        except _MALFORMED:
            data = payload.encode() if isinstance(payload, str) else payload
    event = CloudEvent(native, data)
    if "time" not in attributes:
        # The SDK makes up a time for an event that has none; the map is still ours.
        native.pop("time", None)
    return event


def from_sdk(event: BaseCloudEvent) -> tuple[dict[str, Any], bytes | str | None]:
    """The attributes and the payload of an SDK's event; data without a type is JSON, as in the format."""
    attributes = {name: value for name, value in event.get_attributes().items() if value is not None}
    data = event.get_data()
    if data is None or isinstance(data, bytes):
        return attributes, data
    if isinstance(data, bytearray):
        return attributes, bytes(data)
    datacontenttype = _declared(attributes)
    if isinstance(data, str) and not is_json(datacontenttype):
        return attributes, data
    if not is_json(datacontenttype):
        raise BadEventData(datacontenttype, "can't be written as that type here: give the SDK's event bytes or str")
    return attributes, encode_json(data)


def _has_no_json_form(value: object) -> bool:
    # Tuples and sets are lists in JSON, and typed objects are taken apart as the encoder does.
    plain = msgspec.to_builtins(value, str_keys=True)
    waiting = [plain]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            if item != item or item in (float("inf"), float("-inf")):
                return True
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return False


def _one_line(payload: bytes | str) -> bytes | None:
    # None when it is no JSON after all: then it travels as bytes, unharmed.
    raw = payload.encode() if isinstance(payload, str) else payload
    try:
        raw.decode()
        _decode(raw)
        return msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw
    except _MALFORMED:
        return None


def _scalar(name: str, raw: Raw) -> Any:
    # Looking at the first byte keeps nested values from being built only to be refused.
    if memoryview(raw)[:1].tobytes() in (b"{", b"["):
        raise BadEvent(name, bytes(memoryview(raw)[:16]), "must be a JSON boolean, integer or string")
    value = _decode(raw)
    if isinstance(value, float):
        raise BadEvent(name, value, "must be a JSON boolean, integer or string")
    return value


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise BadEvent("data_base64", text, "must be a string")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadEvent("data_base64", text, f"is not base64: {error}") from None


def _header_value(name: str, value: str) -> str:
    if quoted := _QUOTED.fullmatch(value.strip()):
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeError:
        raise BadEvent(name, value, "is a header that is not percent-encoded UTF-8") from None
