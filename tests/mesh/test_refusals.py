"""Each row of the table of statuses and errors, and connections that do not speak the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw as RawBytes

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Ack, AddBridge, Body, Disconnect, Hello, Nack, Publish, RemoveBridge, Server, Subscribe
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.log_bodies import AskTopics
from echomesh.mesh.options import MeshOptions
from tests.mesh.access_support import CLIENTS
from tests.mesh.support import Raw, Running, an_event, serving

Test = Callable[[Running], Coroutine[Any, Any, None]]


def run(directory: Path, test: Test, access: str | None = CLIENTS, options: MeshOptions | None = None) -> None:
    async def inside() -> None:
        known = None if access is None else Access.parse(access)
        async with serving(directory, options, access=known) as server:
            await test(server)

    asyncio.run(inside())


async def shop(server: Running, purpose: Purpose = Purpose.PUBLISH, client_id: str = "shop") -> Raw:
    return await server.client(client_id, password="secret", purpose=purpose)


def publishing(client: Raw, topic: str = "orders/created", **more: Any) -> Publish:
    return Publish(client.client_id, client.session_id, topic, RawBytes(an_event().encode()), **more)


def test_a_session_that_is_unknown_or_closed(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        stranger = await server.connect()
        answer = await stranger.ask(Command.SUBSCRIBE_REQUEST, Subscribe("shop", "made up", ["orders/a"]))
        assert (answer.command, answer.status, answer.error) == (Command.SUBSCRIBE_RESPONSE, 1, "NO_ACTIVE_SESSION")
        client = await shop(server)
        other = await server.connect()
        stolen = Publish("shop", client.session_id, "orders/a", RawBytes(an_event().encode()))
        answer = await other.ask(Command.PUBLISH_MESSAGE_REQUEST, stolen)
        assert (answer.status, answer.error) == (1, "NO_ACTIVE_SESSION")
        assert (await client.ask(Command.DISCONNECT_REQUEST, Disconnect("shop", client.session_id))).status == 0
        assert await client.closed()

    run(shm_dir, test)


def test_a_session_of_another_client(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client, root = await shop(server), await shop(server, client_id="root")
        for session_id, name in ((client.session_id, "root"), (root.session_id, "shop")):
            body = Publish(name, session_id, "orders/a", RawBytes(an_event().encode()))
            answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, body)
            assert (answer.status, answer.error) == (1, "INVALID_CLIENT")

    run(shm_dir, test)


def test_an_empty_seq_and_one_that_is_in_flight(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await shop(server)
        answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(client), seq="")
        assert (answer.status, answer.error) == (1, "INVALID_SEQ")
        for _ in range(2):
            client.send(Command.PUBLISH_MESSAGE_REQUEST, publishing(client), seq="same")
        answers = {(await client.receive()).error, (await client.receive()).error}
        assert answers == {"", "INVALID_SEQ"}

    run(shm_dir, test)


@pytest.mark.parametrize(
    ("name", "password"),
    [("nobody", "secret"), ("shop", "wrong"), ("shop", None), ("sho*", "secret"), ("**", "secret"), ("", "secret")],
)
def test_an_unknown_client_and_a_wrong_password(shm_dir: Path, name: str, password: str | None) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        answer = await client.ask(Command.HELLO_REQUEST, Hello(name, password=password))
        assert (answer.command, answer.status, answer.error) == (Command.HELLO_RESPONSE, 2, "NOT_AUTHORIZED")
        assert "secret" not in (answer.description or "")

    run(shm_dir, test)


def test_an_environment_or_a_role_that_the_client_has_not(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        for more in ({"environment": "PRD"}, {"is_server": True, "urn": "x", "port": 1}):
            client = await server.connect()
            hello = Hello("shop", password="secret", **more)
            answer = await client.ask(Command.HELLO_REQUEST, hello)
            assert (answer.status, answer.error) == (2, "NOT_AUTHORIZED")
        client = await server.connect()
        assert (await client.ask(Command.HELLO_REQUEST, Hello("shop", "MOON", password="secret"))).status == 1

    run(shm_dir, test)


def test_a_purpose_that_forbids(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        publisher, subscriber = await shop(server), await shop(server, Purpose.SUBSCRIBE)
        answer = await subscriber.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(subscriber))
        assert (answer.status, answer.error) == (2, "UNAUTHORIZED_PUBLISH")
        body = Subscribe("shop", publisher.session_id, ["orders/a"])
        answer = await publisher.ask(Command.SUBSCRIBE_REQUEST, body)
        assert (answer.status, answer.error) == (2, "UNAUTHORIZED_SUBSCRIBE")

    run(shm_dir, test)


@pytest.mark.parametrize("topic", ["**", "orders/../secrets", "secrets", "*/created", "orders"])
def test_a_topic_that_the_access_file_forbids(shm_dir: Path, topic: str) -> None:
    allowed = {"orders"}

    async def test(server: Running) -> None:
        subscriber = await shop(server, Purpose.SUBSCRIBE)
        answer = await subscriber.ask(Command.SUBSCRIBE_REQUEST, Subscribe("shop", subscriber.session_id, [topic]))
        wanted = (0, "") if topic in allowed or topic.startswith("orders/") else (2, "UNAUTHORIZED_SUBSCRIBE")
        assert (answer.status, answer.error) == wanted
        if "*" not in topic:
            publisher = await shop(server)
            answer = await publisher.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(publisher, topic))
            wanted = (0, "") if topic in allowed or topic.startswith("orders/") else (2, "UNAUTHORIZED_PUBLISH")
            assert (answer.status, answer.error) == wanted

    run(shm_dir, test)


def test_more_publishes_a_second_than_allowed(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await shop(server, client_id="slow")
        for _ in range(20):
            client.send(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, "a"))
        answers = [await client.receive() for _ in range(20)]
        over = [answer for answer in answers if answer.status == 3]
        assert len(over) >= 15
        assert over[0].error == ""
        assert "at most 2 publishes a second" in (over[0].description or "")
        assert "try again in" in (over[0].description or "")

    run(shm_dir, test)


@pytest.mark.parametrize(
    ("urn", "port", "error"),
    [
        ("", 4889, "INVALID_URL"),
        ("http://x", 4889, "INVALID_URL"),
        ("a b", 4889, "INVALID_URL"),
        ("x" * 300, 4889, "INVALID_URL"),
        ("127.0.0.1", 0, "INVALID_URL"),
        ("127.0.0.1", 70000, "INVALID_URL"),
        ("127.0.0.1", 1, "INVALID_BRIDGE"),
        ("localhost", 4889, "INVALID_BRIDGE"),
    ],
)
def test_a_bridge_that_can_not_be(shm_dir: Path, urn: str, port: int, error: str) -> None:
    async def test(server: Running) -> None:
        root = await shop(server, client_id="root")
        body = AddBridge(urn, port, "root", root.session_id)
        answer = await root.ask(Command.ADD_BRIDGE_REQUEST, body)
        assert (answer.command, answer.status, answer.error) == (Command.ADD_BRIDGE_RESPONSE, 1, error)
        assert answer.description not in ("", "fail", None)

    run(shm_dir, test)


def test_a_bridge_needs_the_right_admin(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await shop(server)
        answer = await client.ask(Command.ADD_BRIDGE_REQUEST, AddBridge("127.0.0.1", 4890, "shop", client.session_id))
        assert (answer.status, answer.error) == (2, "NOT_AUTHORIZED")
        answer = await client.ask(Command.ADD_BRIDGE_REQUEST, AddBridge("127.0.0.1", 4890))
        assert (answer.status, answer.error) == (1, "NO_ACTIVE_SESSION")

    run(shm_dir, test)


def test_a_publish_to_a_server_that_no_bridge_leads_to(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await shop(server)
        body = publishing(client, urn="far.example", port=4889)
        answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, body)
        assert (answer.status, answer.error) == (1, "NO_BRIDGE_SERVER")
        here = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, publishing(client, urn="localhost", port=4889))
        assert (here.status, protocol.body_of(here).offset) == (0, 0)

    run(shm_dir, test)


def test_an_ack_whose_way_names_a_bridge_that_is_not_ours(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await shop(server, Purpose.SUBSCRIBE)
        body = Ack("shop", client.session_id, "TST", "orders/a", 1, [Server("far.example", 4889)])
        answer = await client.ask(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, body)
        expected = (Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE, 1, "UNKNOWN_BRIDGE")
        assert (answer.command, answer.status, answer.error) == expected

    run(shm_dir, test)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (Command.SUBSCRIBE_REQUEST, lambda session: Subscribe("shop", session, [])),
        (Command.SUBSCRIBE_REQUEST, lambda session: Subscribe("shop", session, ["orders//a"])),
        (Command.SUBSCRIBE_REQUEST, lambda session: Subscribe("shop", session, ["orders/a"], "yesterday")),
        (Command.SUBSCRIBE_REQUEST, lambda session: Subscribe("shop", session, ["orders/a"], [1])),
        (Command.NACK_REQUEST, lambda session: Nack("shop", session, "orders/a", 7)),
        (Command.TOPICS_REQUEST, lambda session: AskTopics("shop", session, "a//b")),
        (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, lambda session: Ack("shop", session, "TST", "orders/none", 1)),
        (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, lambda session: Ack("shop", session, "PRD", "orders/a", 1)),
        (Command.HELLO_REQUEST, lambda session: Hello("shop", password="secret")),
        (Command.REMOVE_BRIDGE_REQUEST, lambda session: RemoveBridge("x", 1, "shop", session)),
    ],
)
def test_anything_else_that_is_wrong_is_described(shm_dir: Path, command: Command, body: Callable[[str], Body]) -> None:
    async def test(server: Running) -> None:
        client = await shop(server, Purpose.SUBSCRIBE)
        answer = await client.ask(command, body(client.session_id))
        assert answer.status in (1, 2)
        assert len(answer.description or "") > 10
        assert (await client.ask(Command.HEARTBEAT_REQUEST)).status == 0, "the connection lives on"

    run(shm_dir, test)


@pytest.mark.parametrize(
    "payload",
    [
        protocol.encode_value(("EventMash", "0000", 0, 0, "", "", "7", None)),
        protocol.encode_value(("EventMesh", "0001", 0, 0, "", "", "7", None)),
        protocol.encode_value(("EventMesh", "0000", 99, 0, "", "", "7", None)),
        protocol.encode_value(("EventMesh", "0000", 1, 0, "", "", "7", None)),
        protocol.encode_value(("EventMesh", "0000", 2, 0, "", "", "7", {"ClientId": 5})),
        protocol.encode_value(("EventMesh", "0000", 4, 0, "", "", "7", None)),
    ],
)
def test_a_message_that_is_not_of_the_protocol_is_answered_and_the_connection_closed(
    shm_dir: Path, payload: bytes
) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(framed(payload))
        answer = await client.receive()
        assert (answer.seq, answer.status) == ("7", 1)
        assert len(answer.description or "") > 10
        assert await client.closed()

    run(shm_dir, test)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\1\0\1" + b"x" * 100, b"\0\0\0\0"]
)
def test_bytes_that_are_no_message_close_the_connection(shm_dir: Path, data: bytes) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        client.write(data)
        assert await client.closed()

    run(shm_dir, test)


def test_one_that_says_nothing_is_closed(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        dripping = await server.connect()
        dripping.write(b"\0\0")
        assert await client.closed()
        assert await dripping.closed()

    run(shm_dir, test, None, MeshOptions(stranger_s=0.2, heartbeat_s=0.2))
