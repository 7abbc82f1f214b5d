"""What the CloudEvents 1.0 standard allows in an attribute: https://github.com/cloudevents/spec.

A check passes, or raises `BadEvent` with the attribute's name and what is wrong.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from echomesh.errors import BadEvent

Attribute: TypeAlias = bool | int | str | bytes | datetime
"""A value of the CloudEvents types: Boolean, Integer, String or URI, Binary, Timestamp."""

SPECVERSION: Final = "1.0"
REQUIRED: Final = ("specversion", "id", "source", "type")
OPTIONAL: Final = ("datacontenttype", "dataschema", "subject", "time")
CORE: Final = frozenset(REQUIRED + OPTIONAL)

# The standard sets no limit, but a hostile map of empty attributes takes seventy times its size in memory.
MAX_ATTRIBUTES: Final = 255
MAX_EXTENSIONS: Final = MAX_ATTRIBUTES - len(CORE) - 1
NO_EXTENSIONS: Final[Mapping[str, Attribute]] = MappingProxyType({})

_PLANE_ENDS = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_DISALLOWED = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANE_ENDS}]")
_EXTENSION_NAME = re.compile(r"[a-z0-9]+", re.ASCII)

# RFC 3986, written so that every character can be matched in one way only: no input makes the search slow.
_PCHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_NO_COLON = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})"
_USER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})*@"
_HOST = (
    r"(?:\[(?:[0-9A-Fa-f:.]+|v[0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+)\]"
    r"|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)"
)
_AUTHORITY = rf"//(?:{_USER})?{_HOST}(?::[0-9]*)?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:\#(?:{_PCHAR}|[/?])*)?"
_ABSOLUTE_PATH = rf"(?:/(?:{_PCHAR}|/)*)?"
_HIERARCHY = rf"(?:{_AUTHORITY}{_ABSOLUTE_PATH}|(?!//)(?:{_PCHAR}|/)*)"
_URI = rf"[A-Za-z][A-Za-z0-9+.\-]*:{_HIERARCHY}{_TAIL}"
_RELATIVE = rf"(?:{_AUTHORITY}{_ABSOLUTE_PATH}|(?!//)/(?:{_PCHAR}|/)*|{_NO_COLON}+(?:/(?:{_PCHAR}|/)*)?|){_TAIL}"
_IS_URI = re.compile(_URI)
_IS_URI_REFERENCE = re.compile(f"{_URI}|{_RELATIVE}")

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_IS_MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*(?:{_TOKEN}=(?:{_TOKEN}|"(?:[ !#-\[\]-~\t]|\\[ -~\t])*"))?)*',
    re.ASCII,
)
GRAMMARS: Final[Mapping[str, str]] = {
    "source": _IS_URI_REFERENCE.pattern,
    "datacontenttype": _IS_MEDIA_TYPE.pattern,
    "dataschema": _IS_URI.pattern,
}
"""As regular expressions, for who checks events by other means."""

_IS_JSON = re.compile(r"[^/;]+/(?:[^/;]+\+)?json[ \t]*(?:;.*)?", re.IGNORECASE)
_IS_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class _Known:
    """Remembers a bounded number of short values that passed a check: sources come again and again."""

    VALUES: Final = 1024
    LENGTH: Final = 256

    def __init__(self) -> None:
        self.values: set[str] = set()

    def add(self, value: str) -> None:
        if len(value) <= self.LENGTH:
            if len(self.values) >= self.VALUES:
                self.values.clear()
            self.values.add(value)


known_sources, known_types, known_media_types = _Known(), _Known(), _Known()
_json_types, _names = _Known(), _Known()


def check_text(name: str, value: object) -> None:
    """A String that is not empty and has no control characters, lone surrogates or noncharacters."""
    if type(value) is not str:
        raise BadEvent(name, value, "must be a string")
    if not value:
        raise BadEvent(name, value, "must not be empty")
    _check_characters(name, value)


def check_type(value: object) -> None:
    """The `type` attribute: text, with a memory."""
    if value.__class__ is not str or value not in known_types.values:
        check_text("type", value)
        known_types.add(str(value))


def check_source(value: object) -> None:
    """The `source` attribute: a URI-reference."""
    if value.__class__ is not str or value not in known_sources.values:
        check_text("source", value)
        text = str(value)
        if not _IS_URI_REFERENCE.fullmatch(text):
            raise BadEvent(
                "source",
                value,
                "must be a URI-reference such as '/shop/7': percent-encode what RFC 3986 forbids",
            )
        known_sources.add(text)


def check_dataschema(value: object) -> None:
    """The `dataschema` attribute: an absolute URI; as in the standard's JSON schema a fragment may follow."""
    check_text("dataschema", value)
    if not _IS_URI.fullmatch(str(value)):
        raise BadEvent("dataschema", value, "must be an absolute URI such as 'https://example.com/order.json'")


def check_media_type(value: object) -> None:
    """The `datacontenttype` attribute: a media type with parameters."""
    if value.__class__ is not str or value not in known_media_types.values:
        check_text("datacontenttype", value)
        text = str(value)
        if not _IS_MEDIA_TYPE.fullmatch(text):
            raise BadEvent("datacontenttype", value, "must be a media type such as 'application/json' (RFC 2046)")
        known_media_types.add(text)


def is_json(datacontenttype: str | None) -> bool:
    """Whether that media type declares JSON: `*/json` or `*/*+json`, whatever its parameters."""
    if datacontenttype == "application/json" or datacontenttype in _json_types.values:
        return True
    if datacontenttype is None or not _IS_JSON.fullmatch(datacontenttype):
        return False
    _json_types.add(datacontenttype)
    return True


def check_extensions(extensions: Mapping[str, Any]) -> Mapping[str, Attribute]:
    """Extension attributes as a read-only copy."""
    if type(extensions) is not dict and not isinstance(extensions, Mapping):
        raise BadEvent("extensions", extensions, "must be a mapping of names to values")
    if len(extensions) > MAX_EXTENSIONS:
        raise BadEvent("extensions", len(extensions), f"are more than the {MAX_EXTENSIONS} allowed: put them in data")
    return MappingProxyType({name: _check_extension(name, value) for name, value in extensions.items()})


def _check_extension(name: str, value: object) -> Attribute:
    if type(name) is not str or name not in _names.values:
        _check_name(name, value)
    kind = type(value)
    if kind is str:
        _check_characters(name, str(value))
    elif kind is int:
        if not -(2**31) <= int(value) < 2**31:  # type: ignore[call-overload]
            raise BadEvent(name, value, "is beyond 32 bits: give it as a string")
    elif isinstance(value, datetime):
        return timestamp(name, value)
    elif kind is not bool and kind is not bytes:
        raise BadEvent(name, value, "must be a bool, int, str, bytes or datetime")
    return value  # type: ignore[return-value]


def _check_name(name: object, value: object) -> None:
    if type(name) is not str or not _EXTENSION_NAME.fullmatch(name):
        raise BadEvent(str(name), value, "has a bad name: use lower-case letters a to z and digits only")
    if name in CORE or name == "data":
        raise BadEvent(name, value, "is no extension: give it as an argument of its own")
    _names.add(name)


def timestamp(name: str, value: object) -> datetime:
    """A Timestamp in UTC, from a datetime with a time zone or from an RFC 3339 string."""
    if type(value) is str:
        return _parse_timestamp(name, value)
    if not isinstance(value, datetime):
        raise BadEvent(name, value, "must be a datetime with a time zone, or an RFC 3339 string")
    if value.utcoffset() is None:
        raise BadEvent(name, value, "has no time zone: use datetime.now(UTC) or .replace(tzinfo=...)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise BadEvent(name, value, "is outside the years 1 to 9999 in UTC") from None


def _parse_timestamp(name: str, value: str) -> datetime:
    match = _IS_TIMESTAMP.fullmatch(value)
    if not match:
        raise BadEvent(name, value, "must be an RFC 3339 time with zone such as '2018-04-05T17:31:00Z'")
    date, minute, second, fraction, zone = match.groups()
    # Python knows no leap seconds: like POSIX we count 23:59:60 as the second that follows it.
    leap = second == "60" and minute.endswith("59")
    text = f"{date}T{minute}:{'59' if leap else second}{(fraction or '')[:7]}{zone.upper()}"
    try:
        return (datetime.fromisoformat(text) + timedelta(seconds=leap)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadEvent(name, value, "is no time of the years 1 to 9999") from None


def canonical(value: Attribute) -> str:
    """The standard's string form of an attribute: `true`, `-7`, base64, `2018-04-05T17:31:00Z`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _check_characters(name: str, value: str) -> None:
    # Printable characters are all allowed, and isprintable() is ten times as fast as the search.
    if not value.isprintable() and (found := _DISALLOWED.search(value)):
        raise BadEvent(name, value, f"must not contain U+{ord(found[0]):04X} (control characters, lone surrogates)")
