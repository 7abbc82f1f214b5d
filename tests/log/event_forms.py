"""Encodings of events, good and bad, for all that judges them: each must agree with `Event.decode`."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgpack  # type: ignore[import-untyped]

from echomesh.events import Event
from tests.log.arrow_support import REQUIRED, packed

TIME_FORMS: list[Any] = [
    "2018-04-05T17:31:00Z",
    "2018-04-05t17:31:00z",
    "2018-04-05T17:31:00.1Z",
    "2018-04-05T17:31:00.123456789+02:00",
    "2018-04-05T00:31:00-23:59",
    "2016-12-31T23:59:60Z",
    "2016-12-31T23:58:60Z",
    "2020-02-29T00:00:00Z",
    "2019-02-29T00:00:00Z",
    "2100-02-29T00:00:00Z",
    "2000-02-29T23:59:59.999999999Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-01:00",
    "2018-04-05T24:00:00Z",
    "2018-04-05T17:31:00+24:00",
    "2018-04-05T17:31:00+01:60",
    "2018-04-05T17:31:00.Z",
    "2018-04-05 17:31:00Z",
    "2018-04-05T17:31:00",
    "2018-4-05T17:31:00Z",
    "2018-13-05T17:31:00Z",
    "٢٠١٨-04-05T17:31:00Z",
    "",
    7,
    True,
    b"2018-04-05T17:31:00Z",
    msgpack.Timestamp(0, 0),
    msgpack.Timestamp(1, 1499),
    msgpack.Timestamp(1, 1500),
    msgpack.Timestamp(-1, 999_999_500),
    msgpack.Timestamp(1, 999_999_999),
    msgpack.Timestamp(253402300799, 999_999_499),
    msgpack.Timestamp(2**33, 1),
    msgpack.Timestamp(-62135596800, 0),
    msgpack.Timestamp(-62135596801, 0),
    msgpack.Timestamp(253402300799, 999_999_999),
    msgpack.Timestamp(253402300800, 0),
    msgpack.ExtType(5, bytes(4)),
    None,
]
VALUE_FORMS: list[Any] = [
    0, 127, 128, -1, -32, -33, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**63,
    2**64 - 1, -(2**63), 1.5, [], {}, [1], {"a": 1}, None, "", "a\x7fb", "a\nb", "\x80", "\ufdd0", "\U0001fffe",
    "ü€😀", "x" * 300, b"", b"1", b"12", b"123", b"x" * 70_000, "y" * 70_000,
]  # fmt: skip
GRAMMAR_FORMS = ("/a b", "a:b:c", ":a", "//h:x", "http://[::1]/", "%zz", "a" * 2000, "ü", "%41", "a/b", 'a/b; c="d e"')
ATTRIBUTES = ("ext", "data", "subject", "id", "type", "source", "dataschema", "datacontenttype", "specversion")
UNDAMAGED = Event(
    type="t", source="/s", id="1", data="text", subject="s", dataschema="a:b", datacontenttype="a/b",
    extensions={"a": 1, "b": True, "c": b"12", "d": datetime(2020, 2, 29, tzinfo=UTC), "e": "x", "f": -70000},
).encode()  # fmt: skip


def forms() -> list[bytes]:
    """Events with values, headers and names in all forms."""
    made = [packed(**{name: time}) for time in TIME_FORMS for name in ("time", "ext")]
    made += [packed(**{name: value}) for value in (*VALUE_FORMS, *GRAMMAR_FORMS) for name in ATTRIBUTES]
    for header in ("d9 {:02x}", "da {:04x}", "db {:08x}", "c4 {:02x}", "c5 {:04x}", "c6 {:08x}"):
        value = bytes.fromhex(header.format(3)) + b"abc"
        made += [b"\x85" + packed()[1:] + name + value for name in (b"\xa4data", b"\xa3ext")]
        made += [start + packed()[1:] + b"\xa3ext" + value for start in (b"\xde\x00\x05", b"\xdf\x00\x00\x00\x05")]
    for form in (b"\xc7\x04\xff", b"\xc8\x00\x04\xff", b"\xc9\x00\x00\x00\x04\xff", b"\xd6\xff"):
        made.append(b"\x85" + packed()[1:] + b"\xa4time" + form + struct.pack(">I", 1_700_000_000))
    for number in (1, 32, 33, 100, 246, 247, 300):
        made.append(packed(**{f"n{i}": i for i in range(number)}))
        body = packed()[1:] + b"".join(msgpack.packb(f"n{i}") + b"\x01" for i in range(number)) + b"\xa2n0\x01"
        made.append(b"\xde" + struct.pack(">H", number + 5) + body)
    made += [packed(**{name: "x"}) for name in ("A", "a_b", "", "ä", "id2", "datum", "specversion1", "datacontenttyp1")]
    made += [msgpack.packb({key: value for key, value in REQUIRED.items() if key != missing}) for missing in REQUIRED]
    return [*made, b"", b"\xc0", b"\x80", b"x", packed() + b"\x00", b"\x84\x01\x01\x02\x02"]


def damaged(number: int) -> Iterator[bytes]:
    """`UNDAMAGED` with a few bytes changed, or cut off."""
    chosen = random.Random(5)
    for _ in range(number):
        data = bytearray(UNDAMAGED)
        for _ in range(chosen.randint(1, 3)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        yield bytes(data) if chosen.random() < 0.8 else bytes(data[: chosen.randrange(len(data) + 1)])


def alike(number: int, chosen: random.Random) -> list[bytes]:
    """Good events that are almost like the one before: another order, another value, something left out."""
    values: dict[str, list[Any]] = {
        "specversion": ["1.0"],
        "id": ["1", "22"],
        "source": ["/s", "/ss"],
        "type": ["t", "u"],
        "subject": ["s", "another"],
        "time": ["2018-04-05T17:31:00Z", "2020-02-29T00:00:00Z", msgpack.Timestamp(7, 0)],
        "datacontenttype": ["text/plain", "text/html"],
        "dataschema": ["a:b", "a:" + "c" * 60],  # too long to be expected as a whole
        "data": [b"x" * 90, "text"],
        "extension": [1, "e"],
        "anotherextension": ["x" * 20, b""],
    }
    names, events = list(values), []
    for _ in range(number):
        if chosen.random() < 0.1:
            chosen.shuffle(names)
        there = [name for name in names if name in REQUIRED or chosen.random() < 0.9]
        pick = {name: chosen.choice(values[name]) if chosen.random() < 0.2 else values[name][0] for name in there}
        events.append(msgpack.packb(pick))
    return events
