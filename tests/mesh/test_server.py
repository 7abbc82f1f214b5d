"""Each command, over a real connection to a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw as RawBytes

from echomesh.events import Event
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Disconnect, Publish, Unsubscribe
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch, Fetched, Offsets, Topics
from echomesh.native.log_record import scan
from tests.mesh.commands import acknowledge, delivered, publish, subscribe
from tests.mesh.support import Raw, Running, an_event, serving


def test_a_heartbeat_needs_no_session(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        client = await server.connect()
        answer = await client.ask(Command.HEARTBEAT_REQUEST, seq="7")
        assert (answer.command, answer.status, answer.seq) == (Command.HEARTBEAT_RESPONSE, 0, "7")

    run(test)


def test_what_is_published_is_delivered_in_order_and_once_it_is_on_disk(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        subscriber, publisher = await server.client(), await server.publisher()
        await subscribe(subscriber, "orders/**")
        assert [await publish(publisher, "orders/created", an_event(i)) for i in range(3)] == [0, 1, 2]
        got: list[str] = []
        while len(got) < 3:
            body = await delivered(subscriber)
            assert (body.topic, body.environment, body.offset) == ("orders/created", "TST", len(got))
            got += [Event.decode(raw).id for raw in body.cloud_events]
        assert got == ["e0", "e1", "e2"]

    run(test)


def test_a_client_that_comes_back_goes_on_behind_its_last_acknowledgement(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        first = await server.client("reader")
        await subscribe(first, "a")
        for i in range(4):
            await publish(publisher, "a", an_event(i))
        got = 0
        while got < 4:
            got += len((await delivered(first)).cloud_events)
        acknowledge(first, "a", 2)
        await first.ask(Command.DISCONNECT_REQUEST, Disconnect("reader", first.session_id))
        assert await first.closed()
        again = await server.client("reader")
        await subscribe(again, "a")
        offsets: list[int] = []
        while len(offsets) < 2:
            body = await delivered(again)
            offsets += range(body.offset, body.offset + len(body.cloud_events))
        assert offsets == [2, 3]

    run(test)


def test_a_restarted_server_remembers_subscriptions_and_acknowledgements(shm_dir: Path) -> None:
    async def test() -> None:
        async with serving(shm_dir) as server:
            reader, publisher = await server.client("reader"), await server.publisher()
            await subscribe(reader, "a/*")
            for i in range(3):
                await publish(publisher, "a/b", an_event(i))
            acknowledge(reader, "a/b", 1)
            await reader.ask(Command.HEARTBEAT_REQUEST)
        async with serving(shm_dir) as server:
            publisher = await server.publisher()
            await publish(publisher, "a/born-later", an_event(9))
            reader = await server.client("reader")
            await subscribe(reader, "a/*")
            found = {}
            for _ in range(2):
                body = await delivered(reader)
                found[body.topic] = (body.offset, len(body.cloud_events))
            assert found == {"a/b": (1, 2), "a/born-later": (0, 1)}

    asyncio.run(test())


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("last", 4), (3, 3), (None, 5), ("now", 5)])
def test_a_subscription_begins_where_it_says(run: Callable[..., None], start: Any, first: int) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        for i in range(5):
            await publish(publisher, "a", an_event(i))
        reader = await server.client("reader")
        await subscribe(reader, "a", start=start)
        await publish(publisher, "a", an_event(5))
        assert (await delivered(reader)).offset == first

    run(test)


def test_overlapping_filters_deliver_once(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a/*", "a/b", "**")
        await publish(publisher, "a/b", an_event(1))
        await publish(publisher, "end", an_event(2))
        assert [(await delivered(reader)).topic for _ in range(2)] == ["a/b", "end"]

    run(test)


def test_a_newer_session_of_the_client_takes_over_and_the_older_one_is_told(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        older, publisher = await server.client("reader"), await server.publisher()
        await publish(publisher, "a", an_event(0))
        await subscribe(older, "a", start="earliest")
        assert (await delivered(older)).offset == 0
        newer = await server.client("reader")
        await subscribe(newer, "a")
        assert (await delivered(newer)).offset == 0
        notice = await older.receive()
        assert notice.command == Command.NOTICE
        assert (protocol.body_of(notice).kind, protocol.body_of(notice).topics) == ("taken-over", ["a"])

    run(test)


def test_a_group_shares_and_one_that_leaves_hands_over(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        members = [await server.client(name, buffer_cloud_events=10) for name in ("one", "two")]
        for member in members:
            await subscribe(member, "a", start="earliest" if member is members[0] else None, group="workers")
        for i in range(20):
            await publish(publisher, "a", an_event(i))
        got: dict[str, list[int]] = {"one": [], "two": []}
        reading = {asyncio.create_task(offsets_of(member)): member for member in members}
        while sum(map(len, got.values())) < 20:
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                member = reading.pop(task)
                got[member.client_id] += task.result()
                reading[asyncio.create_task(offsets_of(member))] = member
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)
        assert sorted(got["one"] + got["two"]) == list(range(20))
        one, two = members
        acknowledge(two, "a", 20, first=0)
        await one.ask(Command.DISCONNECT_REQUEST, Disconnect("one", one.session_id))
        again: list[int] = []
        while len(again) < len(got["one"]):
            again += await offsets_of(two)
        assert again == sorted(got["one"])

    run(test)


def test_a_group_with_small_batches_spreads_what_comes(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        members = [await server.client(name, buffer_cloud_events=1) for name in ("one", "two", "three")]
        for member in members:
            await subscribe(member, "jobs", group="workers")
        for i in range(6):
            await publish(publisher, "jobs", an_event(i))
        got = [await offsets_of(member) + await offsets_of(member) for member in members]
        assert sorted(offset for offsets in got for offset in offsets) == list(range(6))
        await publish(publisher, "jobs", an_event(6))
        acknowledge(members[1], "jobs", got[1][0] + 1, first=got[1][0])
        assert await offsets_of(members[1]) == [6]

    run(test)


def test_a_member_that_comes_later_does_not_move_its_group(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher, one, two = await server.publisher(), await server.client("one"), await server.client("two")
        await subscribe(one, "a", group="workers", start="earliest")
        for i in range(3):
            await publish(publisher, "a", an_event(i))
        got: list[int] = []
        while len(got) < 3:
            got += await offsets_of(one)
        await subscribe(two, "a", group="workers", start="earliest")
        acknowledge(one, "a", 3, first=0)
        await publish(publisher, "a", an_event(3))
        tasks = [asyncio.create_task(offsets_of(member)) for member in (one, two)]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [[3]]
        for task in left:
            task.cancel()
        await asyncio.wait(left)

    run(test)


async def offsets_of(client: Raw) -> list[int]:
    """The offsets that the next delivery brings."""
    body = await delivered(client)
    return list(range(body.offset, body.offset + len(body.cloud_events)))


def test_a_slow_session_gets_no_more_than_its_credit_and_the_rest_waits(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a")
        for i in range(10):
            await publish(publisher, "a", an_event(i, size=300_000))
        bodies = [await delivered(reader) for _ in range(3)]
        assert [body.offset for body in bodies] == [0, 1, 2]
        await reader.ask(Command.HEARTBEAT_REQUEST)  # nothing came before this answer
        acknowledge(reader, "a", 2)
        assert [(await delivered(reader)).offset for _ in range(2)] == [3, 4]

    run(test)


def test_unsubscribing_ends_delivery_and_forgets(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a", "b")
        answer = await reader.ask(Command.UNSUBSCRIBE_REQUEST, Unsubscribe("reader", reader.session_id, ["a"]))
        assert answer.status == 0
        await publish(publisher, "a", an_event(0))
        await publish(publisher, "b", an_event(1))
        assert (await delivered(reader)).topic == "b"
        assert server.server.core.cursors.cursor("TST", ("client", "reader"), "a") is None

    run(test)


def test_topics_offsets_and_stored_records_can_be_asked_for(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        for i in range(3):
            await publish(publisher, "a/b", an_event(i))
        await publish(publisher, "c", an_event(9))
        names = ("reader", reader.session_id)
        topics: Topics = protocol.body_of(await reader.ask(Command.TOPICS_REQUEST, AskTopics(*names, "a/**")))
        assert [(found.topic, found.earliest, found.latest) for found in topics.topics] == [("a/b", 0, 3)]
        offsets: Offsets = protocol.body_of(
            await reader.ask(Command.OFFSETS_REQUEST, AskOffsets(*names, "a/b", time=0))
        )
        assert (offsets.earliest, offsets.latest, offsets.at_time) == (0, 3, 0)
        assert offsets.log_id == server.log.log_id
        fetched: Fetched = protocol.body_of(await reader.ask(Command.FETCH_REQUEST, Fetch(*names, "a/b", 1, until=3)))
        records = scan(fetched.records, 0, 1)
        assert fetched.next_offset == 3
        assert [Event.decode(event).id for event in records.events()] == ["e1", "e2"]

    run(test)


def test_environments_are_apart(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader = await server.client("reader", environment="PRD")
        tst, prd = await server.publisher(), await server.publisher("prod", environment="PRD")
        await subscribe(reader, "**")
        await publish(tst, "a", an_event(0))
        await publish(prd, "a", an_event(1))
        body = await delivered(reader)
        assert (body.environment, Event.decode(body.cloud_events[0]).id) == ("PRD", "e1")

    run(test)


def test_many_publishes_in_flight_are_answered_each_with_its_seq(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        seqs = [
            publisher.send(
                Command.PUBLISH_MESSAGE_REQUEST,
                Publish("shop", publisher.session_id, "a", RawBytes(an_event(i).encode())),
            )
            for i in range(1000)
        ]
        answers = [await publisher.receive() for _ in seqs]
        assert [answer.seq for answer in answers] == seqs
        assert [protocol.body_of(answer).offset for answer in answers] == list(range(1000))

    run(test)


def test_an_event_that_breaks_the_standard_is_refused_alone(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        publisher = await server.publisher()
        bad = Publish("shop", publisher.session_id, "a", RawBytes(protocol.encode_value({"id": "x"})))
        answer = await publisher.ask(Command.PUBLISH_MESSAGE_REQUEST, bad)
        assert answer.status == 1
        assert "missing" in (answer.description or "")
        assert await publish(publisher, "a", an_event(0)) == 0

    run(test)


def test_a_stopping_server_tells_its_clients(shm_dir: Path) -> None:
    async def test() -> None:
        async with serving(shm_dir) as server:
            client = await server.client("reader", purpose=Purpose.SUBSCRIBE)
        notice = await client.receive()
        assert (notice.command, protocol.body_of(notice).kind) == (Command.NOTICE, "stopping")
        assert await client.closed()

    asyncio.run(test())
