"""Sessions against a real server: publishing, subscribing, asking, and what an access file allows."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import echomesh
from echomesh import Event, errors
from echomesh.log import TopicLog
from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Server
from echomesh.mesh.client import Lost, Received, Session, Subscription, session
from echomesh.mesh.client_options import Backoff, parse_address, tls_context
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.passwords import PasswordHash
from echomesh.native.log_record import scan
from tests.log.support import small
from tests.mesh.support import Running, an_event, serving

Test = Callable[[Running], Coroutine[Any, Any, None]]


@pytest.fixture
def run(shm_dir: Path) -> Callable[..., None]:
    """Runs a test with a server."""

    def go(test: Test, options: MeshOptions | None = None, access: Access | None = None) -> None:
        async def inside() -> None:
            async with serving(shm_dir, options, access=access) as server:
                await test(server)

        asyncio.run(inside())

    return go


def connect(server: Running, client_id: str = "shop", **options: Any) -> Session:
    return session(f"127.0.0.1:{server.port}", client_id=client_id, **options)


async def some(subscription: Subscription, number: int) -> list[Received]:
    """The next events; in automatic mode the last of them is not acknowledged yet."""
    async with asyncio.timeout(20):
        return [await anext(subscription) for _ in range(number)]


def ids(received: list[Received]) -> list[str]:
    return [found.id for found in received]


# Publishing


def test_a_publish_gives_its_offset(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with echomesh.session(f"localhost:{server.port}", client_id="shop") as shop:
            event = Event(type="order.created", source="/shop", data={"id": 7})
            assert await shop.publish("orders/created", event) == 0
            assert await shop.publish("orders/created", an_event(1)) == 1
            assert await shop.publish("orders/created", event) == 0  # the same once more
            assert await shop.publish("orders/other", an_event(1).encode()) == 0

    run(test)


def test_many_in_flight_keep_their_order(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            futures = [shop.publish_soon("a", an_event(number)) for number in range(500)]
            assert await asyncio.gather(*futures) == list(range(500))
            events = (an_event(number) for number in range(500, 6000))
            assert await shop.publish_many("a", events) == list(range(500, 6000))

    run(test)


def test_leaving_a_session_waits_for_what_is_in_flight(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            futures = [shop.publish_soon("a", an_event(number)) for number in range(100)]
        assert [future.result() for future in futures] == list(range(100))

    run(test)


def test_more_than_the_window_is_refused_and_publish_waits_for_room(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, window_events=4) as shop:
            first = [shop.publish_soon("a", an_event(number)) for number in range(4)]
            with pytest.raises(errors.SessionBusy) as raised:
                shop.publish_soon("a", an_event(5))
            assert raised.value.events == 4
            more = [asyncio.ensure_future(shop.publish("a", an_event(number))) for number in range(4, 40)]
            await shop.room()
            assert await asyncio.gather(*first, *more) == list(range(40))
        async with connect(server, window_bytes=1000) as shop:
            shop.publish_soon("b", an_event(0, 1000))
            with pytest.raises(errors.SessionBusy):
                shop.publish_soon("b", an_event(1))

    run(test)


def test_an_event_that_breaks_the_standard_is_refused_alone(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.RequestFailed):
                await shop.publish("a", b"\x80")
            with pytest.raises(errors.RequestFailed, match="specversion"):
                await shop.publish_many("a", [an_event(1), b"\x81\xa2id\xa11", an_event(2)])
            assert (await shop.offsets("a")).latest == 2

    run(test)


def test_an_event_over_the_limit_of_the_server_is_refused_here(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("a", an_event(0, 50_000))
            with pytest.raises(errors.FrameTooLarge):
                await shop.publish("a", an_event(1, 200_000))
            assert await shop.publish("a", an_event(2)) == 1

    run(test, MeshOptions(frame_bytes=128 << 10))


def test_a_publish_to_another_server_needs_a_bridge_there(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.NoBridgeServer):
                await shop.publish("a", an_event(0), server="elsewhere:1")
            assert await shop.publish("a", an_event(0), server="here:7") == 0

    run(test, MeshOptions(urn="here", port=7))


def test_a_cancelled_publish_disturbs_nobody(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("a", an_event(0))
            task = asyncio.ensure_future(shop.publish("a", an_event(1)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await shop.publish("a", an_event(2)) in (1, 2)

    run(test)


# Subscribing


def test_a_new_subscription_begins_now_and_takes_topics_that_are_born_later_from_their_beginning(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish("orders/old", an_event(0))
            subscription = await shop.subscribe("orders/**")
            await shop.publish("orders/old", an_event(1))
            await shop.publish("orders/new", an_event(2))
            found = await some(subscription, 2)
            assert sorted((each.topic, each.offset, each.id) for each in found) == [
                ("orders/new", 0, "e2"),
                ("orders/old", 1, "e1"),
            ]

    run(test)


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("last", 9), (4, 4), ("now", 10), ("acknowledged", 10), (100, 10)]
)
def test_a_subscription_begins_where_it_is_told(run: Callable[..., None], start: Any, first: int) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish_many("a", [an_event(number) for number in range(10)])
            subscription = await shop.subscribe("a", start=start)
            await shop.publish("a", an_event(10))
            (found,) = await some(subscription, 1)
            assert found.offset == first

    run(test)


def test_a_subscription_begins_at_a_time(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            await shop.publish_many("a", [an_event(number) for number in range(3)])
            between = datetime.now(UTC)
            await shop.publish_many("a", [an_event(number) for number in range(3, 6)])
            for start in (between, between.isoformat()):
                async with shop.subscribe("a", start=start) as subscription:
                    (found,) = await some(subscription, 1)
                    assert found.offset == 3
            assert (await shop.offsets("a", time_ns=int(between.timestamp() * 1e9))).at_time == 3

    run(test)


def test_what_a_received_event_tells(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            subscription = await shop.subscribe("a")
            event = Event(type="t", source="/s", id="i", subject="sub", data={"x": [1, 2]}, extensions={"priority": 3})
            await shop.publish("a", event)
            (found,) = await some(subscription, 1)
            assert found.event == event
            assert found.encoded == event.encode()
            assert (found.topic, found.offset, found.tries, found.via) == ("a", 0, 1, ())
            assert (found.id, found.source, found.type, found.subject) == ("i", "/s", "t", "sub")
            assert (found.time, found.data, dict(found.extensions)) == (event.time, {"x": [1, 2]}, {"priority": 3})
            assert "offset=0" in repr(found)

    run(test)


def test_automatic_acknowledgement_is_that_of_the_one_before(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            async with shop.subscribe("a", start="earliest") as subscription:
                await shop.publish_many("a", [an_event(number) for number in range(5)])
                assert ids(await some(subscription, 3)) == ["e0", "e1", "e2"]
            async with shop.subscribe("a") as subscription:  # it broke off in the middle of e2
                assert ids(await some(subscription, 3)) == ["e2", "e3", "e4"]

    run(test)


def test_manual_acknowledgements_may_come_in_any_order(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            async with shop.subscribe("a", ack="manual", start="earliest") as subscription:
                await shop.publish_many("a", [an_event(number) for number in range(6)])
                found = await some(subscription, 6)
                for at in (5, 1, 0, 3):
                    await found[at].ack()
            async with shop.subscribe("a", ack="manual") as subscription:
                assert ids(await some(subscription, 4)) == ["e2", "e3", "e4", "e5"]

    run(test)


def test_sessions_of_a_group_share_the_events(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        number = 400
        async with connect(server, "one", batch=8) as one, connect(server, "two", batch=8) as two:
            subscriptions = [await each.subscribe("a", group="workers", start="earliest") for each in (one, two)]
            await one.publish_many("a", [an_event(at) for at in range(number)])
            seen: list[str] = []

            async def work(subscription: Subscription) -> None:
                async for found in subscription:
                    seen.append(found.id)
                    await asyncio.sleep(0)
                    if len(seen) == number:
                        return

            async with asyncio.timeout(20):
                await asyncio.wait(
                    [asyncio.ensure_future(work(each)) for each in subscriptions],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            assert sorted(seen) == sorted(f"e{at}" for at in range(number))

    run(test)


def test_one_that_leaves_a_group_hands_over_what_it_had(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "one") as one, connect(server, "two") as two:
            first = await one.subscribe("a", group="g", ack="manual", start="earliest")
            await one.publish_many("a", [an_event(at) for at in range(10)])
            held = await some(first, 10)
            await held[0].ack()
            second = await two.subscribe("a", group="g")
            await first.close()
            assert ids(await some(second, 9)) == [f"e{at}" for at in range(1, 10)]

    run(test)


def test_what_is_refused_comes_again_and_goes_to_the_dead_letters_in_the_end(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            dead = await shop.subscribe("dead/**")
            subscription = await shop.subscribe("a", ack="manual", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(4)])
            tries: list[int] = []
            others: list[str] = []
            while True:
                (found,) = await some(subscription, 1)
                if found.id != "e1":
                    others.append(found.id)
                    await found.ack()
                    continue
                tries.append(found.tries)
                if await found.nack(delay=0.001, reason="it is broken"):
                    break
            assert tries == [1, 2, 3]
            assert others == ["e0", "e2", "e3"]
            (letter,) = await some(dead, 1)
            assert (letter.topic, letter.id) == ("dead/a", "e1")
            assert letter.extensions["deadreason"] == "it is broken"
            await subscription.close()
            await shop.publish("a", an_event(9))
            assert ids(await some(await shop.subscribe("a"), 1)) == ["e9"]

    run(test, MeshOptions(max_tries=3))


def test_a_newer_session_of_the_client_takes_over_and_the_older_is_told(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as old, connect(server) as new:
            first = await old.subscribe("orders/**", ack="manual", start="earliest")
            await old.publish_many("orders/a", [an_event(0), an_event(1)])
            await (await some(first, 1))[0].ack()
            await old.offsets("orders/a")
            second = await new.subscribe("orders/a")
            assert ids(await some(second, 1))[0] in ("e0", "e1")
            with pytest.raises(errors.TakenOver) as raised:
                await some(first, 2)
            assert raised.value.topics == ["orders/a"]
            with pytest.raises(errors.TakenOver):
                await anext(first)

    run(test)


def test_unsubscribing_forgets_the_place(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            subscription = await shop.subscribe("a", start="earliest")
            await shop.publish_many("a", [an_event(at) for at in range(3)])
            await some(subscription, 1)
            await subscription.unsubscribe()
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
            again = await shop.subscribe("a")
            await shop.publish("a", an_event(3))
            assert ids(await some(again, 1)) == ["e3"]

    run(test)


def test_a_session_forgets_subscriptions_that_ended(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            for _ in range(3):
                async with shop.subscribe("a"):
                    assert len(shop._subscriptions) == 1
            with pytest.raises(errors.RequestFailed):
                await shop.subscribe("a", start="yesterday")
            assert len(shop._subscriptions) == 0

    run(test)


def test_iterating_ends_with_the_session(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def follow(subscription: Subscription) -> None:
            async for found in subscription:
                seen.put_nowait(found.id)

        async with connect(server) as shop:
            task = asyncio.ensure_future(follow(await shop.subscribe("a")))
            await shop.publish("a", an_event(0))
            assert await seen.get() == "e0"
        await task
        assert seen.empty()
        with pytest.raises(errors.SessionEnded):
            await shop.publish("a", an_event(1))
        with pytest.raises(errors.SessionEnded):
            shop.subscribe("a")

    run(test)


def test_lost_events_are_an_error_or_told_and_never_skipped_in_silence(shm_dir: Path) -> None:
    with TopicLog(shm_dir, small(retention_bytes=8192)) as log:
        for number in range(300):
            log.append("a", an_event(number))
        log.core.keeper.care()
        earliest = log.core.topics["TST", "a"].earliest
    assert 0 < earliest < 300

    async def test() -> None:
        async with serving(shm_dir) as server, connect(server) as shop:
            for _ in range(2):  # until it was gone over, it is told
                async with shop.subscribe("a", start=0) as subscription:
                    with pytest.raises(errors.OffsetsLost) as raised:
                        await some(subscription, 1)
                    assert (raised.value.topic, raised.value.first, raised.value.last) == ("a", 0, earliest - 1)
                    assert ids(await some(subscription, 2)) == [f"e{earliest}", f"e{earliest + 1}"]
            told: list[Lost] = []
            async with shop.subscribe("a", start=0, on_lost=told.append) as subscription:
                assert ids(await some(subscription, 1)) == [f"e{earliest}"]
            assert told == [Lost("a", 0, earliest - 1)]
            async with shop.subscribe("a") as subscription:
                assert ids(await some(subscription, 1)) == [f"e{earliest}"]

    asyncio.run(test())


def test_bad_filters_and_modes_are_refused_before_anything_is_sent(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.BadTopic):
                shop.subscribe("a*b")
            with pytest.raises(errors.UsageError, match="at least one"):
                shop.subscribe()
            with pytest.raises(errors.UsageError, match="manual"):
                shop.subscribe("a", ack="never")  # type: ignore[arg-type]
            with pytest.raises(errors.RequestFailed, match="Start"):
                await shop.subscribe("a", start="yesterday")
            with pytest.raises(errors.UsageError, match="can't be sent"):
                shop.subscribe("a", start=1 << 70)
            with pytest.raises(errors.UsageError, match="can't be sent"):
                shop.subscribe("a", group="\udc80")
            with pytest.raises(errors.BadTopic):
                await shop.publish("a/*", an_event(0))
            with pytest.raises(TypeError):
                await shop.publish("a", bytearray(b"x"))  # type: ignore[arg-type]
            assert await shop.publish("a", an_event(0)) == 0

    run(test)


# Asking and answering


def test_a_request_gets_its_reply(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "asker one") as shop, connect(server, "answerer") as other:
            questions = await other.subscribe("ask")

            async def answer() -> None:
                async for question in questions:
                    await other.reply(question, Event(type="sum", source="/sums", data=question.data + 1))

            task = asyncio.ensure_future(answer())
            asked = [shop.request("ask", Event(type="q", source="/shop", data=n), timeout=20) for n in range(20)]
            assert [reply.data for reply in await asyncio.gather(*asked)] == list(range(1, 21))
            task.cancel()

    run(test)


def test_a_request_that_nobody_answers_times_out_and_what_asks_nothing_gets_no_reply(
    run: Callable[..., None],
) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            with pytest.raises(errors.MeshTimeout, match="no reply"):
                await shop.request("ask", an_event(0), timeout=0.05)
            with pytest.raises(errors.UsageError, match="replyto"):
                await shop.reply(an_event(1), an_event(2))

    run(test)


# The log, stages, bridges


def test_topics_offsets_and_records_can_be_asked_for(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            events = [an_event(at) for at in range(5)]
            await shop.publish_many("a/b", events)
            await shop.publish("c", an_event(0))
            assert [(each.topic, each.latest) for each in await shop.topics("a/*")] == [("a/b", 5)]
            assert len(await shop.topics()) == 2
            offsets = await shop.offsets("a/b")
            assert (offsets.earliest, offsets.latest, offsets.log_id) == (0, 5, server.log.log_id)
            fetched = await shop.fetch("a/b", 1, until=4)
            records = scan(fetched.records, 0, fetched.offset)
            assert records.events() == [event.encode() for event in events[1:4]]
            assert (fetched.next_offset, fetched.lost) == (4, None)

    run(test)


def test_staged_rows_appear_together_or_not_at_all(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            stages = []
            for part in range(2):
                stage = await shop.stage("nightly", 1, "run", part)
                for at in range(10):
                    await stage.add("reports", an_event(part * 10 + at, size=100_000))
                staged = await stage.close()
                assert staged.rows == 10
                stages.append(staged.stage)
                with pytest.raises(errors.ClosedError):
                    await stage.add("reports", an_event(0, size=2 << 20))
            assert await shop.topics() == []
            assert (await shop.commit("nightly", 1, "run", stages)).rows == 20
            assert (await shop.commit("nightly", 1, "run", stages)).rows == 20
            assert (await shop.offsets("reports")).latest == 20
            unused = await shop.stage("nightly", 2, "run")
            await unused.add("reports", an_event(99))
            await unused.close()
            await shop.abort("nightly", 2)
            assert (await shop.offsets("reports")).latest == 20

    run(test)


def test_bridges_are_asked_for_by_address(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server) as shop:
            assert await shop.bridges() == []
            with pytest.raises(errors.InvalidBridge):
                await shop.add_bridge("127.0.0.1:9", topics=["orders/**"])
            with pytest.raises(errors.UnknownBridge):
                await shop.remove_bridge("127.0.0.1:9")

    run(test)


# Who may


def access() -> Access:
    entry = """
        [clients.{name}]
        password = "{password}"
        environments = ["TST"]
        publish = ["orders/**"]
        subscribe = ["orders/**"]
        {more}
    """
    password = PasswordHash.of("right").text
    clients = [("shop", ""), ("slow", "publishes_per_second = 2")]
    return Access.parse("\n".join(entry.format(name=name, password=password, more=more) for name, more in clients))


def test_what_an_access_file_forbids_is_an_error_of_its_own(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, password="right") as shop:
            assert await shop.publish("orders/a", an_event(0)) == 0
            with pytest.raises(errors.UnauthorizedPublish):
                await shop.publish("secrets", an_event(0))
            with pytest.raises(errors.UnauthorizedSubscribe):
                await shop.subscribe("**")
            with pytest.raises(errors.UnauthorizedSubscribe):
                await anext(shop.subscribe("secrets"))
            with pytest.raises(errors.NotAuthorized):
                await shop.add_bridge("127.0.0.1:9")
            assert await shop.publish("orders/a", an_event(1)) == 1
        for options in ({"password": "wrong"}, {"password": None}, {"password": "right", "environment": "PRD"}):
            async with connect(server, **options) as shop:
                with pytest.raises(errors.NotAuthorized):
                    await shop.publish("orders/a", an_event(2))
                with pytest.raises(errors.NotAuthorized):
                    await anext(shop.subscribe("orders/a"))

    run(test, access=access())


def test_too_many_publishes_a_second_are_refused_with_the_limit(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "slow", password="right") as shop:
            with pytest.raises(errors.RateLimited, match="2 publishes a second"):
                await shop.publish_many("orders/a", [an_event(at) for at in range(50)])

    run(test, access=access())


def test_a_password_is_in_no_text() -> None:
    made = session("here", client_id="shop", password="hunter2-")
    assert "hunter2-" not in repr(made.options)
    assert "hunter2-" not in repr(vars(made))


# Addresses, TLS, patience


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("mesh.example", Server("mesh.example", 4889)),
        ("mesh.example:5", Server("mesh.example", 5)),
        ("10.0.0.1:65535", Server("10.0.0.1", 65535)),
        ("[::1]:7", Server("::1", 7)),
        ("[::1]", Server("::1", 4889)),
        ("::1", Server("::1", 4889)),
    ],
)
def test_addresses_are_read(text: str, server: Server) -> None:
    assert parse_address(text) == server


@pytest.mark.parametrize("text", ["", ":5", "host:", "host:x", "host:0", "host:65536", "[::1", "[::1]7", "host:١"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is no address"):
        session(text, client_id="shop")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"client_id": ""}, "client_id"),
        ({"client_id": "x" * 256}, "client_id"),
        ({"client_id": "\udc80"}, "client_id"),
        ({"client_id": 7}, "client_id"),
        ({"client_id": "shop", "password": "\udc80"}, "password"),
        ({"client_id": "shop", "environment": "DEV"}, "environment"),
    ],
)
def test_what_a_session_can_not_be_is_told_before_it_connects(options: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.UsageError, match=what):
        session("here", **options)


def test_nobody_there_is_told_soon() -> None:
    async def test() -> None:
        async with session("127.0.0.1:1", client_id="shop", connect_timeout=0.05) as shop:
            with pytest.raises(errors.ConnectionLost, match=r"127\.0\.0\.1:1 within 0\.05 s"):
                await shop.publish("a", an_event(0))
            with pytest.raises(ConnectionError):
                await anext(shop.subscribe("a"))
            with pytest.raises(errors.ConnectionLost):
                await shop.topics()

    asyncio.run(test())


def test_one_who_never_answers_is_left() -> None:
    async def test() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with session(f"127.0.0.1:{port}", client_id="shop", connect_timeout=0.05) as shop:
            with pytest.raises(errors.ConnectionLost, match="does not answer"):
                await shop.publish("a", an_event(0))
        server.close()
        await server.wait_closed()

    asyncio.run(test())


def test_pauses_between_attempts_grow_with_jitter_to_a_bound() -> None:
    backoff = Backoff(0.1, 2.0)
    pauses = [backoff.pause() for _ in range(20)]
    for at, pause in enumerate(pauses):
        whole = min(0.1 * 2**at, 2.0)
        assert whole / 2 <= pause <= whole
    assert len(set(pauses)) == 20
    backoff.reset()
    assert backoff.pause() <= 0.1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    made, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


def test_tls_is_used_and_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    run: Callable[..., None], certificate: tuple[Path, Path]
) -> None:
    made, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)

    async def test(server: Running) -> None:
        ((_, port),) = await server.server.listen("127.0.0.1", 0, context)
        async with session(f"localhost:{port}", client_id="shop", tls=made) as shop:
            subscription = await shop.subscribe("a")
            await shop.publish_many("a", [an_event(at, 10_000) for at in range(100)])
            assert ids(await some(subscription, 100))[-1] == "e99"
        async with session(f"localhost:{port}", client_id="shop", tls=True) as shop:
            with pytest.raises(errors.ConnectionLost, match="not trusted"):
                await shop.publish("a", an_event(0))

    run(test)


def test_a_tls_file_that_is_not_there_is_told() -> None:
    with pytest.raises(errors.UsageError, match="PEM"):
        tls_context("/nowhere/at/all.pem")
    assert tls_context(None) is tls_context(False) is None


def test_the_face_has_the_session_and_imports_it_late() -> None:
    code = (
        "import sys, echomesh; assert 'asyncio' not in sys.modules; assert 'session' in dir(echomesh);"
        "echomesh.session; echomesh.Session; echomesh.Received; echomesh.sync.session"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    with pytest.raises(AttributeError):
        echomesh.nothing  # noqa: B018
