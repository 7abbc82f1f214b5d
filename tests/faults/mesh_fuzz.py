"""Messages that are almost right: valid ones of every command, changed by a seeded random."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from echomesh.frames import framed
from echomesh.mesh.codes import MAGIC, VERSION, Command
from tests.mesh.support import an_event

encode: Final = msgspec.msgpack.Encoder().encode
HERE: Final = {"Urn": "127.0.0.1", "Port": 4889}

TOPICS: Final = ("a", "b/c", "fuzz/x")

NASTY: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    1,
    -1,
    255,
    65536,
    (1 << 31) - 1,
    1 << 32,
    (1 << 53) + 1,
    (1 << 62),
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    -(1 << 63),
    0.5,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e308,
    "",
    "\0",
    "a\0b",
    "a",
    "**",
    "*/**/*/**",
    "dead/a",
    "/",
    "//",
    "../../etc",
    "TST",
    "PRD",
    "é" * 127,
    "x" * 255,
    "x" * 256,
    "x" * 5000,
    "2026-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    b"",
    b"\0" * 16,
    b"\xff" * 16,
    b"\0" * 24,
    [],
    {},
    [[]],
    [None],
    [1, 2],
    ["**"],
    ["a", "a"],
    [0, 1 << 62],
    {"": None},
    {"Urn": "x"},
    [{"Urn": "127.0.0.1", "Port": -1}],
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
    msgspec.msgpack.Ext(-1, b""),
    msgspec.msgpack.Ext(-1, b"\xff" * 12),
    msgspec.msgpack.Ext(5, b"x"),
)


def event(number: int) -> dict[str, Any]:
    """A CloudEvent as it stands in a message."""
    found: dict[str, Any] = msgspec.msgpack.decode(an_event(number, 3, extensions={"tries": 7}).encode())
    return found


def bodies(random: random.Random, client_id: str, session_id: str, log_id: bytes) -> dict[Command, dict[str, Any]]:
    """A valid body of each command."""
    who = {"ClientId": client_id, "SessionId": session_id}
    at = random.randrange(40)
    topic = random.choice(TOPICS)
    events = [event(random.randrange(1 << 30)) for _ in range(random.randrange(1, 4))]
    server = {"Urn": "127.0.0.1", "Port": 1}
    return {
        Command.HEARTBEAT_REQUEST: {},
        Command.HEARTBEAT_RESPONSE: {},
        Command.HELLO_REQUEST: {
            "ClientId": client_id,
            "Environment": "TST",
            "Urn": "127.0.0.1",
            "Port": 5,
            "Password": "secret",
            "BufferCloudEvents": 10,
            "Purpose": random.randrange(2),
            "IsServer": random.random() < 0.5,
            "Pid": 7,
            "LogId": log_id,
            "Topics": ["**"],
        },
        Command.HELLO_RESPONSE: {"SessionId": session_id, "LogId": log_id, "HeartbeatSeconds": 1.0, "FrameBytes": 1000},
        Command.SUBSCRIBE_REQUEST: {
            **who,
            "Topics": [topic, "**"],
            "Start": random.choice((None, "now", "earliest", "last", 3, "2026-01-01T00:00:00Z")),
            "Group": random.choice((None, "g")),
        },
        Command.SUBSCRIBE_RESPONSE: {},
        Command.ASYNC_MESSAGE_TO_CLIENT: {
            "Environment": "TST",
            "Topic": topic,
            "Offset": at,
            "CloudEvents": events,
            "BridgeServers": [],
        },
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK: {
            **who,
            "Environment": "TST",
            "Topic": topic,
            "Offset": at,
            "BridgeServers": [],
            "IsClient": True,
            "First": random.choice((None, at - 3, at + 3)),
        },
        Command.ADD_BRIDGE_REQUEST: {**who, **server, "Topics": ["**"]},
        Command.ADD_BRIDGE_RESPONSE: {},
        Command.ASYNC_MESSAGE_TO_SERVER: {
            **who,
            "Environment": "TST",
            "Topic": topic,
            "Origin": log_id,
            "Offset": at,
            "CloudEvents": events,
            "BridgeServers": [HERE],
            "Since": random.choice((None, max(0, at - 2))),
        },
        Command.DISCONNECT_REQUEST: dict(who),
        Command.DISCONNECT_RESPONSE: {},
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE: {},
        Command.PUBLISH_MESSAGE_REQUEST: {
            **who,
            "Topic": topic,
            "CloudEvent": events[0],
            "Urn": random.choice((None, "127.0.0.1", "far")),
            "Port": random.choice((None, 4889, 1)),
            "Environment": "TST",
            "Hops": 1,
        },
        Command.PUBLISH_MESSAGE_RESPONSE: {"Offset": at},
        Command.UNSUBSCRIBE_REQUEST: {**who, "Topics": [topic], "Group": random.choice((None, "g"))},
        Command.UNSUBSCRIBE_RESPONSE: {},
        Command.NACK_REQUEST: {**who, "Topic": topic, "Offset": at, "Delay": 0.01, "Reason": "because"},
        Command.NACK_RESPONSE: {"Tries": 2, "Dead": False},
        Command.TOPICS_REQUEST: {**who, "Filter": "**"},
        Command.TOPICS_RESPONSE: {"Topics": [{"Topic": "a", "Earliest": 0, "Latest": 1}]},
        Command.OFFSETS_REQUEST: {**who, "Topic": topic, "Time": at},
        Command.OFFSETS_RESPONSE: {"LogId": log_id, "Earliest": 0, "Latest": 1},
        Command.FETCH_REQUEST: {**who, "Topic": topic, "Offset": at, "Until": at + 3, "MaxBytes": 1000},
        Command.FETCH_RESPONSE: {"LogId": log_id, "Offset": 0, "NextOffset": 1, "Records": b""},
        Command.REMOVE_BRIDGE_REQUEST: {**who, **server},
        Command.REMOVE_BRIDGE_RESPONSE: {},
        Command.BRIDGES_REQUEST: dict(who),
        Command.BRIDGES_RESPONSE: {"Bridges": []},
        Command.STAGE_REQUEST: {
            **who,
            "Writer": "w",
            "Epoch": at,
            "Run": "r",
            "Part": 0,
            "Stage": random.choice((None, "00ff")),
            "Topics": [topic] * len(events),
            "CloudEvents": events,
            "Done": random.random() < 0.7,
        },
        Command.STAGE_RESPONSE: {"Stage": "00ff", "Rows": 1},
        Command.COMMIT_REQUEST: {**who, "Writer": "w", "Epoch": at, "Run": "r", "Stages": ["00ff"]},
        Command.COMMIT_RESPONSE: {"Epoch": at, "Run": "r", "Rows": 1},
        Command.TICKET_REQUEST: {**who, "Right": random.choice(["read", "stage", "all"]), "Filters": ["a/**"]},
        Command.TICKET_RESPONSE: {"Ticket": "t", "Seconds": 3600.0},
        Command.ABORT_REQUEST: {**who, "Writer": "w", "Epoch": at},
        Command.ABORT_RESPONSE: {},
        Command.NOTICE: {"Kind": "stopping", "Topics": []},
        Command.ROUTES: {"Routes": [{"Urn": "far", "Port": 1, "Way": [log_id, b"\7" * 16]}]},
    }


class Fuzz:
    """Gives frames: most of them are messages with a little that is wrong, some are right, some are noise."""

    def __init__(self, seed: int, commands: Sequence[Command] = tuple(Command)) -> None:
        self.random = random.Random(seed)
        self.commands = commands
        self._numbers = 0

    def frame(self, client_id: str, session_id: str, log_id: bytes) -> bytes:
        """The next one, for a client that has this session."""
        random = self.random
        command = random.choice(self.commands)
        body: Any = bodies(random, client_id, session_id, log_id)[command]
        self._numbers += 1
        fields: list[Any] = [MAGIC, VERSION, int(command), 0, "success", "", f"s{self._numbers}", body]
        for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
            self._spoil(fields, body)
        payload = encode(fields)
        if random.random() < 0.1:
            payload = self._noise(payload)
        return framed(payload) if random.random() < 0.98 else self._misframed(payload)

    def _spoil(self, fields: list[Any], body: dict[str, Any]) -> None:
        random = self.random
        value = copy.deepcopy(random.choice(NASTY))
        if random.random() < 0.08 and len(fields) > 7:
            fields[random.choice((0, 1, 2, 3, 3, 4, 5, 5, 6, 7))] = value
        elif random.random() < 0.02 and len(fields) > 7:
            fields[2] = random.choice(list(Command))
        elif random.random() < 0.02:
            fields[random.randrange(8) :] = []
            fields += [value] * random.randrange(9)
        else:
            self._spoil_body(body, value)

    def _spoil_body(self, body: dict[str, Any], value: Any) -> None:
        random = self.random
        # Somewhere within: down into maps and lists by chance.
        place: Any = body
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                return
            key = random.choice(keys)
            inside = place[key]
            if isinstance(inside, dict | list) and inside and random.random() < 0.6:
                place = inside
                continue
            break
        if isinstance(place, dict) and random.random() < 0.1:
            del place[key]
        elif isinstance(place, dict) and random.random() < 0.1:
            place[random.choice(("Unknown", "", "x" * 300, "Start"))] = value
        elif isinstance(inside, int) and not isinstance(inside, bool) and random.random() < 0.5:
            place[key] = max(-(1 << 63), min(inside + random.choice((-1, 1, 1000, -1000, 1 << 40)), (1 << 64) - 1))
        else:
            place[key] = self._alike(inside) if random.random() < 0.7 else value

    def _alike(self, inside: Any) -> Any:
        # Of the same type, so that more than the decoder gets to see it.
        alike = [value for value in NASTY if type(value) is type(inside)]
        return copy.deepcopy(self.random.choice(alike or NASTY))

    def _noise(self, payload: bytes) -> bytes:
        random = self.random
        data = bytearray(payload)
        how: list[Callable[[], object]] = [
            lambda: data.__setitem__(random.randrange(len(data)), random.randrange(256)),
            lambda: data.insert(random.randrange(len(data)), random.randrange(256)),
            lambda: data.pop(random.randrange(len(data))),
            lambda: data.__delitem__(slice(random.randrange(len(data)), None)),
            lambda: data.extend(random.randbytes(random.randrange(20))),
        ]
        for _ in range(random.randrange(1, 4)):
            if data:
                random.choice(how)()
        return bytes(data)

    def _misframed(self, payload: bytes) -> bytes:
        length = self.random.choice((0, 1, len(payload) // 2, len(payload) + 5, 1 << 20, 1 << 27, (1 << 32) - 1))
        return struct.pack(">I", length) + payload
