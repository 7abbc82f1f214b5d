"""Commands of a client that is made of a connection and nothing else."""

from __future__ import annotations

from typing import Any

from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Ack, Deliver, Publish, Subscribe
from echomesh.mesh.codes import Command
from tests.mesh.support import Raw


async def publish(client: Raw, topic: str, event: Event) -> int:
    body = Publish(client.client_id, client.session_id, topic, RawBytes(event.encode()))
    answer = await client.ask(Command.PUBLISH_MESSAGE_REQUEST, body)
    assert answer.status == 0, answer.description
    offset: int = protocol.body_of(answer).offset
    return offset


async def subscribe(client: Raw, *topics: str, start: Any = None, group: str | None = None) -> None:
    answer = await client.ask(
        Command.SUBSCRIBE_REQUEST, Subscribe(client.client_id, client.session_id, list(topics), start, group)
    )
    assert answer.status == 0, answer.description


async def delivered(client: Raw) -> Deliver:
    message = await client.receive()
    assert message.command == Command.ASYNC_MESSAGE_TO_CLIENT
    body: Deliver = protocol.body_of(message)
    return body


def acknowledge(client: Raw, topic: str, offset: int, **more: Any) -> None:
    client.send(
        Command.ASYNC_MESSAGE_TO_CLIENT_ACK,
        Ack(client.client_id, client.session_id, "TST", topic, offset, **more),
    )
