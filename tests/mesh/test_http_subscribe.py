"""Server-sent events: from where they come, how a reader resumes, and what a slow one costs."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import uvloop

from echomesh.mesh.bodies import Publish
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.http import HttpOptions
from echomesh.mesh.http_tails import SHORT_TOKEN
from echomesh.mesh.options import MeshOptions
from tests.log.support import small
from tests.mesh.http_support import PATIENCE_S, Reader, Web, an_event, some_events
from tests.mesh.support import Raw
from tests.support.counts import count

# No heartbeat comes in the time of a test: what wakes a reader is the commit alone.
QUIET = HttpOptions(heartbeat_s=3600.0)
STILL = MeshOptions(heartbeat_s=3600.0)


@pytest.fixture
def web(shm_dir: Path) -> Iterator[Web]:
    with Web(shm_dir, None, QUIET, options=STILL) as web:
        yield web


def resumed(reader: Reader) -> dict[str, str]:
    """What a browser says when it connects again."""
    reader.close()
    return {"Last-Event-ID": reader.last_id}


# Where it begins


def test_a_subscription_begins_now_unless_it_is_said_otherwise(web: Web) -> None:
    web.publish("a", *some_events(3))
    with web.subscribe("a") as reader:
        web.publish("a", *some_events(2, 3))
        assert reader.ids(2) == ["e3", "e4"]


@pytest.mark.parametrize(
    ("start", "first"),
    [("now", 5), ("earliest", 0), ("last", 4), ("0", 0), ("3", 3), ("99", 5), ("", 5), ("1999-01-01T00:00:00Z", 0)],
)
def test_a_subscription_begins_where_it_is_said(web: Web, start: str, first: int) -> None:
    web.publish("a", *some_events(5))
    with web.subscribe(f"a?start={start}") as reader:
        web.publish("a", an_event(5))
        assert reader.ids(6 - first) == [f"e{number}" for number in range(first, 6)]


@pytest.mark.parametrize("zone", ["Z", "+00:00", "%2B00:00"])
def test_a_subscription_begins_at_a_time(web: Web, zone: str) -> None:
    web.publish("a", an_event(0))
    now = datetime.now(UTC)
    while datetime.now(UTC) == now:
        pass
    moment = datetime.now(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    web.publish("a", an_event(1))
    with web.subscribe(f"a?start={moment}{zone}") as reader:
        assert reader.ids(1) == ["e1"]


@pytest.mark.parametrize("start", ["yesterday", "-1", "1.5", "9" * 5000, "acknowledged", "2026-99-01T00:00:00Z"])
def test_a_start_that_is_none_is_refused(web: Web, start: str) -> None:
    assert web.ask("GET", f"/topics/a?start={start}").problem == (400, "fail", "")


def test_a_filter_gets_what_it_matches_and_topics_that_are_born_later_from_their_beginning(web: Web) -> None:
    web.publish("orders/old", an_event("old"))
    with web.subscribe("orders/**") as reader:
        web.publish("orders/new", *some_events(2))
        web.publish("other", an_event("other"))
        web.publish("orders/old", an_event("more"))
        assert reader.ids(3) == ["e0", "e1", "emore"]


def test_environments_are_apart(web: Web) -> None:
    with web.subscribe("a?environment=VAL") as reader:
        web.publish("a", an_event("test"))
        web.ask("POST", "/topics/a?environment=VAL", b"[" + an_event("val").to_json() + b"]",
                {"Content-Type": "application/cloudevents-batch+json"})  # fmt: skip
        assert reader.ids(1) == ["eval"]


def test_the_place_of_an_event_is_added_where_it_is_wanted(web: Web) -> None:
    web.publish("orders/a", *some_events(2, extensions={"own": 1}))
    with web.subscribe("orders/*?start=earliest&position=true") as reader:
        found = [reader.next().cloud_event.extensions for _ in range(2)]
    assert found == [{"own": 1, "meshtopic": "orders/a", "meshoffset": str(offset)} for offset in range(2)]


def test_a_head_request_says_what_would_come(web: Web) -> None:
    answer = web.ask("HEAD", "/topics/a")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/event-stream", 200), ("text/html, */*;q=0.1", 200), ("text/*", 200), ("application/json", 406), ("", 406)],
)
def test_only_who_takes_an_event_stream_gets_one(web: Web, accept: str, status: int) -> None:
    assert web.ask("HEAD", "/topics/a", headers={"Accept": accept}).status == status


def test_events_with_lines_and_strange_characters_stay_whole(web: Web) -> None:
    odd = [
        an_event(0, data={"text": "a\nb\r\n\u2028c: d\n\ndata: x"}),
        an_event(1, data='{\n"pretty":\r\n true }', datacontenttype="application/json"),
        an_event(2, data="id: 7\n\n:", subject="\u2029 \ufeff"),
    ]
    web.publish("a", *odd)
    with web.subscribe("a?start=earliest") as reader:
        got = reader.events(3)
    assert [event.data for event in got] == [event.data for event in odd]


# Coming back


def test_a_reader_that_comes_back_goes_on_behind_the_last_event_that_it_got(web: Web) -> None:
    with web.subscribe("**?start=earliest") as reader:
        web.publish("a", *some_events(3))
        web.publish("b/c", *some_events(3, 10))
        assert reader.ids(4) == ["e0", "e1", "e2", "e10"]
        headers = resumed(reader)
    web.publish("a", an_event(3))
    web.publish("born/later", an_event("new"))
    with web.subscribe("**?start=earliest", headers) as reader:
        assert sorted(reader.ids(4)) == ["e11", "e12", "e3", "enew"]


def test_a_reader_that_got_nothing_comes_back_to_where_it_began(web: Web) -> None:
    web.publish("a", *some_events(3))
    with web.subscribe("a") as reader:
        assert reader.block().data == ""
        headers = resumed(reader)
    assert headers["Last-Event-ID"]
    web.publish("a", an_event(3))
    with web.subscribe("a", headers) as reader:
        assert reader.ids(1) == ["e3"]


def test_the_place_can_be_brought_in_the_address_too(web: Web) -> None:
    web.publish("a", *some_events(3))
    with web.subscribe("a?start=earliest") as reader:
        assert reader.ids(1) == ["e0"]
        after = quote(resumed(reader)["Last-Event-ID"])
    with web.subscribe(f"a?after={after}") as reader:
        assert reader.ids(2) == ["e1", "e2"]


def test_a_reader_resumes_after_a_restart_of_the_server_with_nothing_lost_and_nothing_twice(shm_dir: Path) -> None:
    headers: dict[str, str] = {}
    got: list[str] = []
    for round in range(count(4, 40)):
        with Web(shm_dir, None, QUIET) as web:
            web.publish("a", *some_events(10, round * 10))
            web.publish(f"b/{round}", an_event(f"b{round}"))
            with web.subscribe("**?start=earliest", headers) as reader:
                # A few are left for the next round.
                got += reader.ids(11 if round else 8)
                headers = resumed(reader)
    with Web(shm_dir) as web, web.subscribe("**", headers) as reader:
        got += reader.ids(3)
    rounds = count(4, 40)
    assert [name for name in got if "b" not in name] == [f"e{number}" for number in range(rounds * 10)]
    assert sorted(name for name in got if "b" in name) == sorted(f"eb{round}" for round in range(rounds))


def test_readers_that_are_cut_off_again_and_again_under_load_miss_nothing(web: Web) -> None:
    total = count(300, 20_000)
    published = 0
    headers: dict[str, str] = {}
    got: list[str] = []
    while len(got) < total:
        while published < total and published < len(got) + 40:
            web.publish(f"t/{published % 3}", *some_events(5, published))
            published += 5
        with web.subscribe("t/*?start=earliest", headers) as reader:
            for _ in range(min(17, published - len(got))):
                got.append(reader.next().cloud_event.id)
            headers = resumed(reader)
    assert sorted(got, key=lambda name: int(name[1:])) == [f"e{number}" for number in range(total)]
    for third in range(3):
        mine = [int(name[1:]) for name in got if int(name[1:]) // 5 % 3 == third]
        assert mine == sorted(mine)


def test_with_many_topics_the_place_is_told_now_and_then_and_nothing_is_lost(web: Web) -> None:
    topics = 300
    for number in range(topics):
        web.publish(f"t/{number}", an_event(f"{number}-0"))
    expected = {f"e{number}-{turn}" for number in range(topics) for turn in range(2)}
    got: list[str] = []
    told = set()
    with web.subscribe("t/*?start=earliest") as reader:
        for _ in range(topics):
            sent = reader.next()
            told.add(sent.last_id)
            got.append(sent.cloud_event.id)
        assert SHORT_TOKEN < len(reader.last_id) < 8 * topics
        assert len(told) < topics
        headers = resumed(reader)
    for number in range(topics):
        web.publish(f"t/{number}", an_event(f"{number}-1"))
    with web.subscribe("t/*", headers) as reader:
        while set(got) != expected:
            got.append(reader.next().cloud_event.id)
    assert len(got) < 1.6 * len(expected)


def test_the_heartbeat_tells_a_place_that_was_not_told(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(heartbeat_s=0.05)) as web:
        for number in range(200):
            web.publish(f"t/{number}", an_event(0))
        with web.subscribe("t/*?start=earliest") as reader:
            reader.events(200)
            while (sent := reader.block()).comments == []:
                assert sent.data == ""
            headers = resumed(reader)
        web.publish("t/7", an_event(1))
        with web.subscribe("t/*", headers) as reader:
            assert reader.ids(1) == ["e1"]


def test_a_place_in_another_log_is_told_as_lost_and_all_comes(shm_dir: Path) -> None:
    with Web(shm_dir / "one") as web:
        web.publish("a", *some_events(3))
        with web.subscribe("a?start=earliest") as reader:
            reader.events(3)
            headers = resumed(reader)
    with Web(shm_dir / "two") as web:
        web.publish("a", an_event("other"))
        with web.subscribe("a", headers) as reader:
            assert (told := reader.next()).event == "lost"
            assert "another" in told.json["reason"]
            assert reader.ids(1) == ["eother"]


@pytest.mark.parametrize("token", ["x", "AAAA", "AQ", "%", "ä", "A" * 40_000, "AS5rLypIpxEL_w", "=" * 12])
def test_a_place_that_is_none_is_refused(web: Web, token: str) -> None:
    answer = web.ask("GET", f"/topics/a?after={quote(token)}")
    assert answer.problem == (400, "fail", "")
    assert "Last-Event-ID" in answer.json["detail"]


# What can't be had


def test_what_retention_removed_is_told_as_a_range(shm_dir: Path) -> None:
    with Web(shm_dir, log_options=small(retention_bytes=8192)) as web:
        web.publish("a", *some_events(400))
        web.see(web.log.core.keeper.care)
        [listed] = web.ask("GET", "/topics").json["topics"]
        assert 0 < listed["earliest"] < 400
        with web.subscribe("a?start=0") as reader:
            assert (told := reader.next()).event == "lost"
            assert {key: told.json[key] for key in ("topic", "from", "to")} == {
                "topic": "a", "from": 0, "to": listed["earliest"]}  # fmt: skip
            headers = resumed(reader)
        with web.subscribe("a", headers) as reader:
            assert reader.ids(2) == [f"e{listed['earliest']}", f"e{listed['earliest'] + 1}"]


def test_a_record_that_is_no_event_is_told_as_lost(web: Web) -> None:
    async def put() -> None:
        await web.log.append_many("a", [an_event(0).encode(), b"\x93no", an_event(2).encode()])

    web.run(put)
    with web.subscribe("a?start=earliest") as reader:
        assert reader.ids(1) == ["e0"]
        told = reader.next()
        assert (told.event, told.json["from"], told.json["to"]) == ("lost", 1, 2)
        assert reader.ids(1) == ["e2"]


# Silence, slowness and the end


def test_comments_come_while_nothing_else_does(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(heartbeat_s=0.02)) as web, web.subscribe("a") as reader:
        first = reader.block()
        for _ in range(3):
            assert reader.block().comments == [""]
        assert reader.last_id == first.last_id
        web.publish("a", an_event(7))
        assert reader.ids(1) == ["e7"]


def test_when_the_server_stops_readers_are_told_and_the_streams_end_in_order(shm_dir: Path) -> None:
    with Web(shm_dir, None, QUIET) as web:
        web.publish("a", an_event(0))
        readers = [web.subscribe("a?start=earliest"), web.subscribe("**?group=g")]
        readers[0].events(1)
        web.close()
        for reader in readers:
            [told] = reader.rest()
            assert told.event == "end"
            assert "stopping" in told.json["reason"] or "connect again" in told.json["reason"]
            reader.close()


def buffered(web: Web) -> int:
    """The bytes that the server holds for its slowest reader."""
    wires = web.http._wires.state.connections
    return max((wire.transport.get_write_buffer_size() for wire in wires), default=0)


def test_a_reader_that_does_not_read_waits_in_the_log_and_keeps_nobody_waiting(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(stall_s=PATIENCE_S)) as web:
        events = some_events(300, data={"text": "x" * 100_000})
        for first in range(0, 300, 20):
            web.publish("big", *events[first : first + 20])
        with web.subscribe("big?start=earliest") as slow, web.subscribe("small") as quick:
            most = 0
            for number in range(50):
                web.publish("small", an_event(number))
                assert quick.ids(1) == [f"e{number}"]
                most = max(most, web.see(lambda: buffered(web)))
            assert most < 300_000
            assert slow.ids(300) == [f"e{number}" for number in range(300)]


def test_a_reader_that_never_reads_is_given_up(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(stall_s=0.1)) as web:
        for first in range(0, 200, 20):
            web.publish("big", *some_events(20, first, data={"text": "x" * 100_000}))
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", web.port))
            stuck.sendall(b"GET /topics/big?start=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deadline = time.monotonic() + PATIENCE_S
            while web.see(lambda: len(web.http._face._streams)) or web.see(
                lambda: len(web.http._wires.state.connections)
            ):
                assert time.monotonic() < deadline
        assert web.ask("GET", "/health").status == 200


def test_a_reader_that_leaves_is_forgotten(web: Web) -> None:
    for _ in range(20):
        web.subscribe("**").close()
    deadline = time.monotonic() + PATIENCE_S
    while web.see(lambda: len(web.http._face._streams)):
        assert time.monotonic() < deadline
    assert web.see(lambda: [len(matcher) for matcher in web.http._face.tails._matchers.values()]) == [0]


def test_many_readers_get_the_same_events(web: Web) -> None:
    readers = [web.subscribe("**") for _ in range(count(30, 300))]
    for number in range(10):
        web.publish(f"t/{number}", an_event(number))
    for reader in readers:
        assert sorted(reader.ids(10)) == [f"e{number}" for number in range(10)]
        reader.close()


def test_events_of_sessions_come_to_readers_too(web: Web) -> None:
    async def publish() -> None:
        session = await Raw.connect(web.mesh_port)
        await session.hello("shop", purpose=Purpose.PUBLISH)
        body = Publish("shop", session.session_id, "a", msgspec.Raw(an_event("session").encode()))
        assert (await session.ask(Command.PUBLISH_MESSAGE_REQUEST, body)).status == 0
        session.close()

    with web.subscribe("a") as reader:
        asyncio.run(publish())
        assert reader.ids(1) == ["esession"]


def test_uvloop_serves_as_well(shm_dir: Path) -> None:
    with Web(shm_dir, None, QUIET, loop_factory=uvloop.new_event_loop) as web, web.subscribe("a") as reader:
        web.publish("a", *some_events(3))
        assert reader.ids(3) == ["e0", "e1", "e2"]
