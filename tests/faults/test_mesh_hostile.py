"""Clients that mean no good: each is refused or closed, costs bounded memory, and leaves the others alone."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw as RawBytes

from echomesh.mesh import protocol
from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Ack, Body, Deliver, Disconnect, Forward, Hello, Nack, Publish, Subscribe, Unsubscribe
from echomesh.mesh.codes import MAGIC, VERSION, Command, Purpose
from echomesh.mesh.frames import framed
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.passwords import PasswordHash
from tests.faults.mesh_support import fill, still_serves, until
from tests.mesh.support import Raw, Running, an_event, serving
from tests.support.counts import count

Test = Callable[[Running], Coroutine[Any, Any, None]]

SECRET = PasswordHash.of("secret").text
ACCESS = f"""
[clients.shop]
password = "{SECRET}"
environments = ["TST"]
publish = ["orders/**"]
subscribe = ["orders/**"]

[clients.good]
password = "{SECRET}"
environments = ["TST"]
publish = ["**"]
subscribe = ["**"]
"""
QUICK = MeshOptions(heartbeat_s=0.2, stranger_s=0.3)
DEPTH = 100_000
encode = msgspec.msgpack.encode


def run(directory: Path, test: Test, options: MeshOptions | None = None, access: str | None = None) -> None:
    """Whatever a test does, no exception is left unhandled, and the server serves on."""
    unhandled: list[dict[str, Any]] = []

    async def inside() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        known = None if access is None else Access.parse(access)
        async with serving(directory, options, access=known) as server:
            await test(server)
            await still_serves(server, password=None if access is None else "secret")

    asyncio.run(inside())
    assert not unhandled, unhandled


async def subscriber(server: Running, *filters: str, start: Any = None, **hello: Any) -> Raw:
    client = await server.client("shop", **hello)
    body = Subscribe("shop", client.session_id, list(filters), start)
    answer = await client.ask(Command.SUBSCRIBE_REQUEST, body)
    assert answer.status == 0, answer.description
    return client


def publishing(client: Raw, topic: str, number: int = 0, size: int = 0) -> Publish:
    return Publish(client.client_id, client.session_id, topic, RawBytes(an_event(number, size).encode()))


# Connections


def test_who_drips_bytes_is_closed_in_time(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        stranger, known = await server.connect(), await server.client()
        frame = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("shop")))
        for client in (stranger, known):
            with suppress(ConnectionError):
                for byte in frame[:-1]:
                    client.write(bytes((byte,)))
                    await client.writer.drain()
                    if client.reader.at_eof():
                        break
                    await asyncio.sleep(0.05)
            assert await client.closed()

    run(shm_dir, test, QUICK)


def test_who_never_reads_its_answers_is_closed_in_time(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            while server.server.core.connections:
                client.send(Command.HEARTBEAT_REQUEST, seq="x" * 1000)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.writer.drain()
        client.writer.transport.abort()

    run(shm_dir, test, QUICK)


@pytest.mark.parametrize("length", [65_537, 1 << 20, 1 << 31, (1 << 32) - 1])
def test_huge_lengths_are_refused_before_anything_is_kept_for_them(shm_dir: Path, length: int) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(struct.pack(">I", length))
        assert await client.closed()

    run(shm_dir, test)


def test_a_length_over_the_limit_of_a_session_is_refused(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        client.write(struct.pack(">I", (1 << 20) + 1))
        assert await client.closed()

    run(shm_dir, test, MeshOptions(frame_bytes=1 << 20))


@pytest.mark.parametrize("magic", ["EventMash", "", "\0", "EventMesh\0", "x" * 10_000])
def test_a_wrong_magic_value_is_answered_and_the_connection_closed(shm_dir: Path, magic: str) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(framed(encode((magic, VERSION, 0, 0, "", "", "7", None))))
        answer = await client.receive()
        assert (answer.seq, answer.status) == ("7", 1)
        assert len(answer.description or "") < 200
        assert await client.closed()

    run(shm_dir, test)


# Nesting


def nested(kind: bytes, closed: bytes = b"\xc0", depth: int = DEPTH) -> bytes:
    return kind * depth + closed


@pytest.mark.parametrize("kind", [b"\x91", b"\x81\xa1a", b"\x81"], ids=["arrays", "maps", "maps as keys"])
@pytest.mark.parametrize("place", ["message", "body", "event", "extension", "start", "seq"])
def test_deep_nesting_is_refused(shm_dir: Path, kind: bytes, place: str) -> None:
    deep = nested(kind)

    def payload(client: Raw, purpose: Purpose) -> bytes:
        who = {"ClientId": client.client_id, "SessionId": client.session_id}
        head = (MAGIC, VERSION, int(Command.PUBLISH_MESSAGE_REQUEST), 0, "", "", "7")
        event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
        if place == "message":
            return deep
        if place == "body":
            return with_last(head, deep)
        if place == "event":
            return with_last(head, with_entry({**who, "Topic": "a"}, "CloudEvent", deep))
        if place == "extension":
            return with_last(head, with_entry({**who, "Topic": "a"}, "CloudEvent", with_entry(event, "deep", deep)))
        if place == "start":
            subscribe = (MAGIC, VERSION, int(Command.SUBSCRIBE_REQUEST), 0, "", "", "7")
            return with_last(subscribe, with_entry({**who, "Topics": ["a"]}, "Start", deep))
        return b"\x98" + b"".join(encode(field) for field in head[:-1]) + deep + b"\xc0"

    async def test(server: Running) -> None:
        purpose = Purpose.SUBSCRIBE if place == "start" else Purpose.PUBLISH
        client = await server.client(purpose=purpose)
        client.write(framed(payload(client, purpose)))
        answer = None
        with suppress(EOFError):
            answer = await client.receive()
        assert answer is None or answer.status == 1

    run(shm_dir, test)


def with_last(fields: tuple[Any, ...], last: bytes) -> bytes:
    """A MessagePack array of these and one that is encoded already."""
    return bytes((0x90 | (len(fields) + 1),)) + b"".join(map(encode, fields)) + last


def with_entry(entries: dict[str, Any], name: str, value: bytes) -> bytes:
    """A MessagePack map of these and one whose value is encoded already."""
    return bytes((0x80 | (len(entries) + 1),)) + encode(entries)[1:] + encode(name) + value


# Topics, filters and names


def test_who_publishes_to_ever_new_topics_is_stopped(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.publisher()
        await still_serves(server)  # whose topic counts, too
        for number in range(100):
            client.send(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, f"endless/{number}", number))
        answers = [await client.receive() for _ in range(100)]
        refused = [answer for answer in answers if answer.status]
        assert len(refused) == 51
        assert {answer.status for answer in refused} == {2}
        assert "topics" in (refused[0].description or "")
        again = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, "endless/0", 1000))
        assert again.status == 0, "topics that are there can be published to"
        other = await server.publisher("other", environment="PRD")
        elsewhere = await other.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(other, "a"))
        assert elsewhere.status == 0, "each environment has topics of its own"

    run(shm_dir, test, MeshOptions(max_topics=50))


def test_a_bridge_brings_no_more_topics_than_there_may_be(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        await still_serves(server)
        origin = bytes(16)[:-1] + b"1"
        peer = await server.client("peer", is_server=True, urn="far", port=1, log_id=origin)
        for number in range(100):
            event = RawBytes(an_event(number).encode())
            body = Forward("peer", peer.session_id, "TST", f"endless/{number}", origin, 0, [event])
            peer.send(Command.ASYNC_MESSAGE_TO_SERVER, body, seq=f"f{number}")
        statuses: dict[str, int] = {}
        while len(statuses) < 100:
            message = await peer.receive()
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT_ACK:
                statuses[message.seq] = message.status or 0
        assert sorted(statuses.values()) == [0] * 49 + [2] * 51, "each topic that is too many is refused for itself"

    run(shm_dir, test, MeshOptions(max_topics=50))


@pytest.mark.parametrize("number", [1001, 10_000])
def test_too_many_filters_are_refused(shm_dir: Path, number: int) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        filters = [f"a/{i}/**" for i in range(number)]
        answer = await client.ask(Command.SUBSCRIBE_REQUEST, Subscribe("shop", client.session_id, filters))
        assert (answer.status, answer.error) == (1, "")
        for i in range(0, 1000, 100):
            body = Subscribe("shop", client.session_id, filters[i : i + 100])
            assert (await client.ask(Command.SUBSCRIBE_REQUEST, body)).status == 0
        one_more = Subscribe("shop", client.session_id, ["one/more"])
        assert (await client.ask(Command.SUBSCRIBE_REQUEST, one_more)).status == 1
        another = await server.client()
        one_more.session_id = another.session_id
        assert (await another.ask(Command.SUBSCRIBE_REQUEST, one_more)).status == 1, "they are kept, not of a session"
        group = Subscribe("shop", another.session_id, ["one/more"], group="g")
        assert (await another.ask(Command.SUBSCRIBE_REQUEST, group)).status == 0
        gone = Unsubscribe("shop", another.session_id, filters[:1])
        assert (await another.ask(Command.UNSUBSCRIBE_REQUEST, gone)).status == 0
        third = await server.client()
        one_more.session_id = third.session_id
        assert (await third.ask(Command.SUBSCRIBE_REQUEST, one_more)).status == 0

    run(shm_dir, test)


def test_who_subscribes_as_ever_new_groups_is_stopped(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.client()
        for number in range(12):
            body = Subscribe("shop", client.session_id, ["a"], group=f"g{number}")
            answer = await client.ask(Command.SUBSCRIBE_REQUEST, body)
            assert (answer.status == 0) == (number < 10), answer.description
        for group in ("", "x" * 256):
            answer = await client.ask(
                Command.SUBSCRIBE_REQUEST, Subscribe("shop", client.session_id, ["a"], None, group)
            )
            assert answer.status == 1
        gone = Unsubscribe("shop", client.session_id, ["a"], "g0")
        assert (await client.ask(Command.UNSUBSCRIBE_REQUEST, gone)).status == 0

    run(shm_dir, test, MeshOptions(max_subscribers=10))


def test_pathological_filters_are_matched_quickly(shm_dir: Path) -> None:
    worst = [
        "/".join(["**", "a"] * 50),
        "/".join(["*"] * 127),
        "/".join(["**"] * 80),
        "/".join(["*", "**"] * 50),
        "/".join(["**", "*", "a"] * 30),
    ]

    async def test(server: Running) -> None:
        client = await server.client(buffer_cloud_events=1)
        publisher = await server.publisher()
        topic = "/".join(["a"] * 127)
        await publisher.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(publisher, topic))
        filters = worst + [f"**/a/**/{'a/' * i}**/b" for i in range(100)]
        answer = await client.ask(Command.SUBSCRIBE_REQUEST, Subscribe("shop", client.session_id, filters, "earliest"))
        assert answer.status == 0, answer.description
        delivered: Deliver = protocol.body_of(await client.receive())
        assert delivered.topic == topic
        for number in range(20):
            other = publishing(publisher, topic[:-2] + f"/{number}", number)
            assert (await publisher.ask(Command.PUBLISH_MESSAGE_REQUEST, other)).status == 0
        client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Ack("shop", client.session_id, "TST", topic, 1))
        assert protocol.body_of(await client.receive()).topic.startswith("a/a/")

    run(shm_dir, test)


@pytest.mark.parametrize("name", ["\0", "a\0b", "a//b", "/", "*x", "x" * 256, "é" * 128, "\ud800"])
def test_topics_that_can_not_be(shm_dir: Path, name: str) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        body = {
            "ClientId": "shop",
            "SessionId": publisher.session_id,
            "Topic": name,
            "CloudEvent": msgspec.msgpack.decode(an_event().encode()),
        }
        raw = encode((MAGIC, VERSION, 14, 0, "", "", "7", {**body, "Topic": "@@"}))
        spelled = name.encode(errors="surrogatepass")
        size = bytes((0xD9, len(spelled))) if len(spelled) < 256 else b"\xda" + struct.pack(">H", len(spelled))
        publisher.write(framed(raw.replace(b"\xa2@@", size + spelled)))
        answer = None
        with suppress(EOFError):
            answer = await publisher.receive()
        assert answer is None or answer.status == 1 or "\0" in name

    run(shm_dir, test)


# Sessions and rights


def test_passwords_are_not_to_be_guessed(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        async def guess(password: str) -> str:
            client = await server.connect()
            answer = await client.ask(Command.HELLO_REQUEST, Hello("shop", password=password))
            assert (answer.status, answer.error) == (2, "NOT_AUTHORIZED")
            return answer.description or ""

        assert "too many" not in await guess("guess")
        while not re.search("too many wrong passwords: try again in [2-9]", await guess("guess")):
            pass
        assert "too many" in await guess("secret"), "who guesses does not learn that this one was right"

    run(shm_dir, test, access=ACCESS)


def test_many_guesses_in_one_connection_cost_bounded_memory(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        hello = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("nobody", password="x" * 500)))
        with suppress(ConnectionError):
            client.write(hello * 10_000)
            assert await client.closed()
        assert not server.server.core.sessions

    run(shm_dir, test, MeshOptions(stranger_s=1.0), access=ACCESS)


@pytest.mark.parametrize("session_id", ["", "0", "\0", "*", "**", "x" * 10_000])
def test_session_ids_are_not_to_be_guessed(shm_dir: Path, session_id: str) -> None:
    async def test(server: Running) -> None:
        victim = await server.client("shop", password="secret", purpose=Purpose.PUBLISH)
        stranger = await server.connect()
        for stolen in (session_id, victim.session_id):
            for name in ("shop", "good", "*"):
                requests: list[tuple[Command, Body]] = [
                    (Command.PUBLISH_MESSAGE_REQUEST, Publish(name, stolen, "orders/a", RawBytes(an_event().encode()))),
                    (Command.SUBSCRIBE_REQUEST, Subscribe(name, stolen, ["orders/a"])),
                    (Command.DISCONNECT_REQUEST, Disconnect(name, stolen)),
                    (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Ack(name, stolen, "TST", "orders/a", 1)),
                ]
                for command, body in requests:
                    answer = await stranger.ask(command, body)
                    assert (answer.status, answer.error) in ((1, "NO_ACTIVE_SESSION"), (1, "INVALID_CLIENT"))
        assert (await victim.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(victim, "orders/a"))).status == 0

    run(shm_dir, test, access=ACCESS)


def test_session_ids_are_all_different_and_long(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        ids = {(await server.client()).session_id for _ in range(50)}
        assert len(ids) == 50
        assert min(map(len, ids)) >= 32

    run(shm_dir, test)


@pytest.mark.parametrize("topic", ["secrets", "order", "ordersx/a", "orders/../secrets", "/secrets", "dead/orders/a"])
def test_nobody_publishes_where_it_may_not(shm_dir: Path, topic: str) -> None:
    async def test(server: Running) -> None:
        client = await server.client("shop", password="secret", purpose=Purpose.PUBLISH)
        assert (await client.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, "orders/a"))).status == 0
        answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, topic))
        allowed = topic.startswith("orders/")  # dots are dots
        assert (answer.status, answer.error) == ((0, "") if allowed else (2, "UNAUTHORIZED_PUBLISH"))
        targeted = publishing(client, topic)
        targeted.urn, targeted.port = "localhost", 4889
        answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, targeted)
        assert (answer.status == 0) == allowed

    run(shm_dir, test, access=ACCESS)


@pytest.mark.parametrize("name", ["*", "**", "sho?", "shop*", "s[h]op", "shop\0", "Shop", " shop", "x" * 300])
def test_a_client_id_is_a_literal(shm_dir: Path, name: str) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        answer = await client.ask(Command.HELLO_REQUEST, Hello(name, password="secret"))
        assert answer.status == (1 if len(name) > 255 else 2)

    run(shm_dir, test, access=ACCESS)


def test_nobody_ends_the_subscription_of_a_group_that_it_may_not_read(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        member = await server.client("good", password="secret")
        wanted = Subscribe("good", member.session_id, ["secrets"], group="g")
        assert (await member.ask(Command.SUBSCRIBE_REQUEST, wanted)).status == 0
        mallory = await server.client("shop", password="secret")
        gone = Unsubscribe("shop", mallory.session_id, ["secrets"], "g")
        answer = await mallory.ask(Command.UNSUBSCRIBE_REQUEST, gone)
        assert (answer.status, answer.error) == (2, "UNAUTHORIZED_SUBSCRIBE")
        publisher = await server.client("good", password="secret", purpose=Purpose.PUBLISH)
        await publisher.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(publisher, "secrets"))
        assert protocol.body_of(await member.receive()).topic == "secrets"

    run(shm_dir, test, access=ACCESS)


# Acknowledgements


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
        client.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Ack("shop", client.session_id, "TST", "orders/a", refused))
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
