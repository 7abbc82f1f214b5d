"""Hostile names: topics, filters, groups, passwords, session and client ids."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw as RawBytes

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Body, Deliver, Disconnect, Forward, Hello, Publish, Subscribe, Unsubscribe
from echomesh.mesh.codes import MAGIC, VERSION, Command, Purpose
from echomesh.mesh.options import MeshOptions
from tests.faults.hostile_support import encode, publishing, run
from tests.faults.mesh_support import still_serves
from tests.mesh.access_support import CLIENTS
from tests.mesh.support import Running, an_array, an_event


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
            events = an_array(an_event(number))
            body = Forward("peer", peer.session_id, "TST", f"endless/{number}", origin, 0, events)
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

    run(shm_dir, test, access=CLIENTS)


def test_many_guesses_in_one_connection_cost_bounded_memory(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        hello = framed(protocol.encode(Command.HELLO_REQUEST, "1", Hello("nobody", password="x" * 500)))
        with suppress(ConnectionError):
            client.write(hello * 10_000)
            assert await client.closed()
        assert not server.server.core.sessions

    run(shm_dir, test, MeshOptions(stranger_s=1.0), access=CLIENTS)


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

    run(shm_dir, test, access=CLIENTS)


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

    run(shm_dir, test, access=CLIENTS)


@pytest.mark.parametrize("name", ["*", "**", "sho?", "shop*", "s[h]op", "shop\0", "Shop", " shop", "x" * 300])
def test_a_client_id_is_a_literal(shm_dir: Path, name: str) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        answer = await client.ask(Command.HELLO_REQUEST, Hello(name, password="secret"))
        assert answer.status == (1 if len(name) > 255 else 2)

    run(shm_dir, test, access=CLIENTS)


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

    run(shm_dir, test, access=CLIENTS)
