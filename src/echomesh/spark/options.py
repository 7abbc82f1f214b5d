"""The options of the source: what a query may say, and what is wrong with what it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

from echomesh.errors import BadOption, BadTopic
from echomesh.topics import parse_filter, parse_topic

T = TypeVar("T")

ENVIRONMENT: Final = "TST"
MAX_BYTES: Final = 1 << 30
LAST_US: Final = ((1 << 63) - 1) // 1000  # a log counts nanoseconds in 64 bits
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

NAMES: Final = (
    "subscribe",
    "path",
    "server",
    "clientId",
    "passwordFile",
    "tls",
    "environment",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "reader",
)
_SPELLED: Final = {name.lower(): name for name in NAMES}
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")

Word = Literal["earliest", "latest"]


@dataclass(frozen=True)
class Place:
    """Where to begin or to end: a word for all topics, offsets or words by topic, or an append time."""

    word: Word | None = None
    topics: Mapping[str, int | Word] | None = None
    time_us: int | None = None


@dataclass(frozen=True)
class SourceOptions:
    """What a query said, checked. One of `path` and `server` is there."""

    subscribe: tuple[str, ...]
    path: str | None
    server: str | None
    client_id: str | None
    password_file: str | None
    tls: str | None
    environment: str
    starting: Place | None
    ending: Place | None
    max_offsets: int | None
    max_bytes: int
    min_partitions: int | None
    fail_on_data_loss: bool
    in_jvm: bool = True  # whether tasks may read inside the JVM


def parse(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """The options of a read; `BadOption` names the first that is wrong. Keys may be written in any case."""
    given = {key.lower(): value for key, value in options.items()}
    check_names(given, streaming)
    get = _Getter(given)
    subscribe = get("subscribe", _filters)
    if subscribe is None:
        raise BadOption("subscribe", "is missing: it says which topics to read, as in orders/**", NAMES)
    server = get("server", _address)
    path = get("path", _text) or (None if server else os.environ.get("ECHOMESH_DATA"))
    _check_way(get, path, server)
    return SourceOptions(
        subscribe,
        path,
        server,
        get("clientId", _text),
        get("passwordFile", _text),
        get("tls", _text),
        get("environment", _text) or ENVIRONMENT,
        _place(get, "starting", ("earliest", "latest")),
        _place(get, "ending", ("latest",)),
        get("maxOffsetsPerTrigger", _positive),
        get("maxBytesPerTrigger", _size) or MAX_BYTES,
        get("minPartitions", _positive),
        get("failOnDataLoss", _truth) is not False,
        get("reader", _reader) != "python",
    )


def check_names(given: Mapping[str, str], streaming: bool | None = None) -> None:
    """Raises `BadOption` for one that the source does not have; `given` has lower case keys."""
    for key in given:
        if key == "subscribepattern":
            raise BadOption("subscribePattern", "is not needed: subscribe takes filters, as in orders/*/created", NAMES)
        if key not in _SPELLED:
            raise BadOption(key, "is unknown", NAMES)
        if streaming and _SPELLED[key] in _BATCH_ONLY:
            raise BadOption(_SPELLED[key], "is for batch reads: a stream has no end")
        if streaming is False and _SPELLED[key] in _STREAM_ONLY:
            raise BadOption(_SPELLED[key], "is for streams: a batch reads all there is; endingOffsets bounds it")


class _Getter:
    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def __call__(self, name: str, read: Callable[[str], T]) -> T | None:
        value = self.given.get(name.lower())
        if value is None:
            return None
        try:
            return read(value.strip())
        except (ValueError, OverflowError) as error:
            # A shortened value: somebody may have put a secret, or a megabyte, in the wrong place.
            shown = value if len(value) <= 80 else f"{value[:80]}..."
            raise BadOption(name, f"= {shown!r} can't be used: {error}") from None


def _check_way(get: _Getter, path: str | None, server: str | None) -> None:
    if server and get("path", _text):
        raise BadOption("server", "and path exclude each other: a log is read where it lies, or fetched")
    if not server and not path:
        raise BadOption("path", "or server is missing: the data directory of a log, or host:port of a server", NAMES)
    if server and get("clientId", _text) is None:
        raise BadOption("clientId", "is missing: a server wants to know who asks")
    for name in ("clientId", "passwordFile", "tls"):
        if not server and get(name, _text) is not None:
            raise BadOption(name, "is of no use without server")


def _place(get: _Getter, which: Literal["starting", "ending"], words: tuple[Word, ...]) -> Place | None:
    offsets, time = f"{which}Offsets", f"{which}Timestamp"
    place = get(offsets, lambda text: _offsets(text, words))
    time_us = get(time, _moment)
    if place is not None and time_us is not None:
        raise BadOption(time, f"and {offsets} exclude each other")
    return place if time_us is None else Place(time_us=time_us)


def _offsets(text: str, words: tuple[Word, ...]) -> Place:
    wanted = f'{" or ".join(words)}, or offsets by topic as in {{"orders": 12}}'
    for word in words:
        if text.lower() == word:
            return Place(word)
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError(f"give {wanted}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"give {wanted}")
    topics: dict[str, int | Word] = {}
    for topic, offset in found.items():
        is_offset = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 1 << 62
        if not is_offset and offset not in words:
            raise ValueError(f"topic {topic!r} has {offset!r}: give {wanted}")
        topics[parse_topic(topic)] = offset
    return Place(topics=topics)


def _filters(text: str) -> tuple[str, ...]:
    found = [parse_filter(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise BadTopic(text, "name topics or filters, with commas between them", "filter")
    return tuple(dict.fromkeys(found))


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("give host:port")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("give a whole number from 1 on")
    return int(text)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise ValueError("give bytes, as in 1048576, 64m or 1g")
    return int(found[1]) << _POWERS[found[2].lower()]


def _reader(text: str) -> str:
    if text.lower() not in ("auto", "python"):
        raise ValueError("give auto or python")
    return text.lower()


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def _moment(text: str) -> int:
    # Milliseconds, as the Kafka connector has them, or a date.
    if text.isdecimal():
        time_us = int(text) * 1000
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("give milliseconds since 1970, or a time as in 2026-07-01T12:00:00Z") from None
        time_us = (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= time_us <= LAST_US:
        raise ValueError("give a time from 1970 to 2262")
    return time_us
