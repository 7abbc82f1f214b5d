"""Hostile offsets, delays, starts and amounts."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Deliver, Nack, Subscribe
from echomesh.mesh.codes import MAGIC, VERSION, Command, Purpose
from echomesh.mesh.options import MeshOptions
from tests.faults.hostile_support import encode, publishing, run, subscriber
from tests.faults.mesh_support import fill, until
from tests.mesh.support import Running, an_event
from tests.support.counts import count


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("first", [None, -5, 3, 8, (1 << 63) - 1])
def test_acknowledgements_of_offsets_that_were_never_sent(shm_dir: Path, offset: int, first: int | None) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 10)
        client = await subscriber(server, "orders/a", start="earliest", buffer_cloud_events=5)
        await client.receive()
        for _ in range(50):
            body = Ack("shop", client.session_id, "TST", "orders/a", offset, first=first)
            client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, body)
        await client.ask(Command.HEARTBEAT_REQUEST)
        cursor = server.server.core.cursors.cursor("TST", ("client", "shop"), "orders/a")
        assert cursor is not None
        assert 0 <= cursor <= 10
        for share in server.server.core.subscriptions.shares.values():
            for grant in share.grants:
                assert len(grant.runs) <= 10
                assert grant.bytes >= 0
                assert grant.delivery.unacknowledged >= 0
        await fill(server, "orders/a", 1, first=10)
        while (delivered := protocol.body_of(await client.receive())).offset + len(delivered.cloud_events) <= 10:
            pass

    run(shm_dir, test)


def test_acknowledgements_whose_range_is_turned_round_change_nothing(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 10)
        client = await subscriber(server, "orders/a", start="earliest")
        await client.receive()
        for _ in range(100):
            body = Ack("shop", client.session_id, "TST", "orders/a", 3, first=8)
            client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, body)
        await client.ask(Command.HEARTBEAT_REQUEST)
        (share,) = server.server.core.subscriptions.shares.values()
        assert [(first, end) for first, end, _ in share.grants[0].runs] == [(0, 10)]

    run(shm_dir, test)


@pytest.mark.parametrize("offset", [-1, 3, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_refusals_of_events_that_the_session_was_not_given(shm_dir: Path, offset: int) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 4)
        client = await subscriber(server, "orders/a", start="earliest", buffer_cloud_events=2)
        await client.receive()
        await client.receive()
        client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Ack("shop", client.session_id, "TST", "orders/a", 4))
        other = await server.client("other")
        for who, topic in ((client, "orders/a"), (client, "orders/none"), (other, "orders/a")):
            body = Nack(who.client_id, who.session_id, topic, offset)
            answer = await who.ask(Command.NACK_REQUEST, body)
            assert (answer.status, answer.error) == (1, "")

    run(shm_dir, test)


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), -float("inf"), -1.0, 1e300])
def test_impossible_delays_stop_no_timer(shm_dir: Path, delay: float) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 4)
        client = await subscriber(server, "orders/a", start="earliest")
        await client.receive()
        body = Nack("shop", client.session_id, "orders/a", 0, delay)
        assert (await client.ask(Command.NACK_REQUEST, body)).status == 0
        again = Nack("shop", client.session_id, "orders/a", 1, 0.01)
        client.send(Command.NACK_REQUEST, again)
        while True:
            message = await client.receive()
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT and protocol.body_of(message).offset == 1:
                break

    run(shm_dir, test)


def test_who_refuses_everything_for_long_holds_a_bounded_number(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        total = 3000
        await fill(server, "orders/a", total)
        client = await subscriber(server, "orders/a", start="earliest", buffer_cloud_events=100)
        refused = 0
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(1.0):
                    message = await client.receive()
                if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                    body: Deliver = protocol.body_of(message)
                    for offset in range(body.offset, body.offset + len(body.cloud_events)):
                        client.send(Command.NACK_REQUEST, Nack("shop", client.session_id, "orders/a", offset, 3600.0))
                        refused += 1
        (share,) = server.server.core.subscriptions.shares.values()
        assert 1000 <= len(share.waiting) == refused < total
        done = Ack("shop", client.session_id, "TST", "orders/a", refused, first=0)
        client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, done)
        assert protocol.body_of(await client.receive()).offset == refused, "it goes on once they are dealt with"

    run(shm_dir, test, MeshOptions(credit_bytes=20_000))


# Odd values


@pytest.mark.parametrize(
    "start",
    [
        float("nan"),
        float("inf"),
        1.5,
        -1,
        1 << 62,
        (1 << 64) - 1,
        -(1 << 63),
        True,
        "",
        "\0",
        "tomorrow",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "9999-99-99T99:99:99Z",
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
        msgspec.msgpack.Ext(-1, struct.pack(">Iq", 0, (1 << 63) - 1)),
        msgspec.msgpack.Ext(-1, struct.pack(">Iq", 0xFFFFFFFF, 0)),
        msgspec.msgpack.Ext(7, b"x"),
        b"now",
        [],
        {"now": 1},
    ],
    ids=lambda start: repr(start) if not isinstance(start, msgspec.msgpack.Ext) else "extension",
)
def test_odd_starts_are_refused_or_mean_something(shm_dir: Path, start: Any) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 4)
        client = await server.client()
        body = Subscribe("shop", client.session_id, ["orders/a"], start)
        answer = None
        with suppress(EOFError):
            answer = await client.ask(Command.SUBSCRIBE_REQUEST, body)
        if answer is not None and answer.status == 0:
            cursor = server.server.core.cursors.cursor("TST", ("client", "shop"), "orders/a")
            assert cursor is not None
            assert 0 <= cursor <= 4

    run(shm_dir, test)


@pytest.mark.parametrize("number", [-1, 0, 65536, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63)])
def test_numbers_out_of_range(shm_dir: Path, number: int) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 4)
        client = await server.client(purpose=Purpose.PUBLISH)
        who = {"ClientId": "shop", "SessionId": client.session_id}
        event = msgspec.msgpack.decode(an_event().encode())
        stage = {**who, "Writer": "w", "Run": "r", "Topics": ["a"], "CloudEvents": [event]}
        requests: list[tuple[Command, dict[str, Any]]] = [
            (Command.PUBLISH_MESSAGE_REQUEST, {"Topic": "a", "CloudEvent": event, "Urn": "far", "Port": number}),
            (Command.PUBLISH_MESSAGE_REQUEST, {"Topic": "a", "CloudEvent": event, "Hops": number}),
            (Command.PUBLISH_MESSAGE_REQUEST, {"Topic": "a", "CloudEvent": {**event, "number": number}}),
            (Command.OFFSETS_REQUEST, {"Topic": "orders/a", "Time": number}),
            (Command.FETCH_REQUEST, {"Topic": "orders/a", "Offset": number}),
            (Command.FETCH_REQUEST, {"Topic": "orders/a", "Offset": 1, "Until": number}),
            (Command.FETCH_REQUEST, {"Topic": "orders/a", "Offset": 1, "MaxBytes": number}),
            (Command.STAGE_REQUEST, {**stage, "Epoch": number, "Part": 0}),
            (Command.STAGE_REQUEST, {**stage, "Epoch": 1, "Part": number}),
            (Command.COMMIT_REQUEST, {"Writer": "w", "Epoch": number, "Run": "r", "Stages": []}),
            (Command.ABORT_REQUEST, {"Writer": "w", "Epoch": number}),
            (Command.ADD_BRIDGE_REQUEST, {"Urn": "127.0.0.1", "Port": number if number else -1}),
        ]
        for i, (command, body) in enumerate(requests):
            client.write(framed(encode((MAGIC, VERSION, int(command), 0, "", "", f"q{i}", {**who, **body}))))
            assert (await client.receive()).seq == f"q{i}"
        other = await server.connect()
        hello = {"ClientId": "x", "BufferCloudEvents": number, "Pid": number, "Port": number}
        other.write(framed(encode((MAGIC, VERSION, 2, 0, "", "", "h", hello))))
        assert (await other.receive()).status == 0

    run(shm_dir, test)


# Much at once


def test_thousands_of_publishes_in_flight_are_all_answered(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.publisher()
        total = count(5000, 50_000)
        for number in range(total):
            client.send(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, "a", number))
        answers = [await client.receive() for _ in range(total)]
        assert {answer.status for answer in answers} == {0}
        assert [protocol.body_of(answer).offset for answer in answers] == list(range(total))
        (connection,) = server.server.core.connections
        assert (connection.in_flight, connection.in_flight_bytes) == ({}, 0)

    run(shm_dir, test)


def test_a_long_line_of_large_answers_waits_for_the_reader(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        await fill(server, "orders/a", 100, 10_000)
        client = await server.client(purpose=Purpose.PUBLISH)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = {"ClientId": "shop", "SessionId": client.session_id, "Topic": "orders/a", "Offset": 0}
        for number in range(100):  # a MiB each
            client.write(framed(encode((MAGIC, VERSION, int(Command.FETCH_REQUEST), 0, "", "", f"q{number}", body))))
        (connection,) = server.server.core.connections
        for _ in range(50):
            await asyncio.sleep(0)
            assert connection.out_bytes < 4 << 20
        assert connection.blocked
        assert connection.paused
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await client.receive() for _ in range(100)]
        assert [answer.seq for answer in answers] == [f"q{number}" for number in range(100)]

    run(shm_dir, test)


def test_more_open_stages_than_allowed_are_refused(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.publisher()
        event = msgspec.msgpack.decode(an_event().encode())
        who = {"ClientId": "shop", "SessionId": client.session_id}
        for number in range(200):
            body = {
                **who,
                "Writer": "w",
                "Epoch": 1,
                "Run": "r",
                "Part": number,
                "Topics": ["a"],
                "CloudEvents": [event],
            }
            client.write(framed(encode((MAGIC, VERSION, int(Command.STAGE_REQUEST), 0, "", "", f"q{number}", body))))
        answers = [await client.receive() for _ in range(200)]
        assert {answer.seq for answer in answers if answer.status == 0} == {f"q{number}" for number in range(64)}
        client.close()
        writing = server.log.core.stages.writing
        await until(lambda: not writing, lambda: writing)

    run(shm_dir, test)


def test_the_oldest_stranger_makes_room_when_there_are_too_many(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        member = await server.client("member")
        strangers = [await server.connect() for _ in range(30)]
        for number in range(15):
            await server.client(f"good {number}")
        assert (await member.ask(Command.HEARTBEAT_REQUEST)).status == 0
        assert await strangers[0].closed()
        assert len(server.server.core.sessions) == 16
        for client in (member, *server.clients):
            client.close()
        await until(lambda: not server.server.core.connections, lambda: server.server.core.connections)

    run(shm_dir, test, MeshOptions(max_connections=20))
