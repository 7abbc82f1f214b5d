"""Groups over HTTP: readers of server-sent events and sessions share the events of a group."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from echomesh.mesh.bodies import Ack, Deliver, Subscribe
from echomesh.mesh.codes import Command
from echomesh.mesh.http import HttpOptions
from echomesh.mesh.options import MeshOptions
from echomesh.mesh.protocol import body_of
from tests.log.support import small
from tests.mesh.access_support import CLIENTS
from tests.mesh.http_support import PATIENCE_S, Reader, Web, an_event, some_events
from tests.mesh.support import Raw


def everybody_left(web: Web) -> None:
    """Waits until the server has seen it."""
    deadline = time.monotonic() + PATIENCE_S
    while web.see(lambda: len(web.server.core.connections) + len(web.server.core.sessions)):
        assert time.monotonic() < deadline


def collect(readers: list[Reader], total: int) -> list[str]:
    """The ids that the readers get, until so many are there."""
    queue: SimpleQueue[str] = SimpleQueue()

    def read(reader: Reader) -> None:
        with suppress(EOFError, OSError, ValueError):
            while True:
                queue.put(reader.next().cloud_event.id)

    threads = [Thread(target=read, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    got = [queue.get(timeout=PATIENCE_S) for _ in range(total)]
    for reader, thread in zip(readers, threads, strict=True):
        reader.connection.sock.shutdown(socket.SHUT_RDWR)
        thread.join()
        reader.close()
    return got


def test_the_members_of_a_group_share_the_events(shm_dir: Path) -> None:
    with Web(shm_dir, options=MeshOptions(batch_events=2)) as web:
        readers = [web.subscribe("orders/*?group=desk") for _ in range(3)]
        alone = web.subscribe("orders/*?group=other")
        for number in range(60):
            web.publish(f"orders/{number % 2}", an_event(number))
        expected = sorted(f"e{number}" for number in range(60))
        assert sorted(collect(readers, 60)) == expected
        assert sorted(collect([alone], 60)) == expected


def test_the_place_of_a_group_is_the_servers_and_survives_a_restart(shm_dir: Path) -> None:
    with Web(shm_dir) as web:
        with web.subscribe("a?group=desk") as reader:
            web.publish("a", *some_events(5))
            assert reader.ids(5) == [f"e{number}" for number in range(5)]
            assert reader.last_id == ""
        web.publish("a", *some_events(5, 5))
    with Web(shm_dir) as web, web.subscribe("a?group=desk") as reader:
        assert reader.ids(5) == [f"e{number}" for number in range(5, 10)]


def test_a_new_group_begins_where_it_is_said(web: Web) -> None:
    web.publish("a", *some_events(5))
    with web.subscribe("a?group=one&start=earliest") as reader:
        assert reader.ids(5) == [f"e{number}" for number in range(5)]
    with web.subscribe("a?group=two&start=3") as reader:
        assert reader.ids(2) == ["e3", "e4"]
    with web.subscribe("a?group=three") as reader:
        web.publish("a", an_event(5))
        assert reader.ids(1) == ["e5"]


def test_what_a_member_was_not_sent_goes_to_the_others(shm_dir: Path) -> None:
    with Web(shm_dir) as web:
        events = some_events(100, data={"text": "x" * 100_000})
        for first in range(0, 100, 20):
            web.publish("a", *events[first : first + 20])
        stuck = web.subscribe("a?group=desk&start=earliest")
        seen = stuck.ids(1)
        stuck.close()
        everybody_left(web)
        with web.subscribe("a?group=desk") as reader:
            got = [reader.next().cloud_event.id]
            while got[-1] != "e99":
                got.append(reader.next().cloud_event.id)
        numbers = [int(name[1:]) for name in got]
        # What was on its way to the one that left counts as sent; no more than the connection holds can be.
        assert seen == ["e0"]
        assert numbers == list(range(numbers[0], 100))
        assert len(numbers) > 30


def test_a_group_of_readers_and_sessions_shares_too(web: Web) -> None:
    total = 100
    for first in range(0, total, 20):
        web.publish("a", *some_events(20, first, data={"text": "x" * 100_000}))

    async def in_session() -> list[int]:
        session = await Raw.connect(web.mesh_port)
        await session.hello("shop")
        subscribe = Subscribe("shop", session.session_id, ["a"], group="desk")
        session.send(Command.SUBSCRIBE_REQUEST, subscribe)
        offsets: list[int] = []
        while not offsets or offsets[-1] < total - 1:
            message = await session.receive()
            if message.command == Command.ASYNC_MESSAGE_TO_CLIENT:
                batch: Deliver = body_of(message)
                behind = batch.offset + len(batch.cloud_events)
                offsets += range(batch.offset, behind)
                ack = Ack("shop", session.session_id, "TST", "a", behind, first=batch.offset)
                session.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK, ack)
        session.close()
        return offsets

    # The reader takes what its connection and its credit hold, and does not read it; the session has the rest.
    with web.subscribe("a?group=desk&start=earliest") as reader:
        theirs = web.run(in_session)
        assert 0 < len(theirs) < total
        ours = [int(name[1:]) for name in reader.ids(total - len(theirs))]
    assert sorted(theirs + ours) == list(range(total))


def test_what_retention_removed_is_told_to_a_group(shm_dir: Path) -> None:
    with Web(shm_dir, log_options=small(retention_bytes=8192)) as web:
        web.publish("a", *some_events(400))
        web.see(web.log.core.keeper.care)
        with web.subscribe("a?group=desk&start=0") as reader:
            told = reader.next()
            assert (told.event, told.json["topic"], told.json["from"]) == ("lost", "a", 0)
            assert reader.ids(1) == [f"e{told.json['to']}"]


def test_a_record_that_is_no_event_is_told_to_a_group(web: Web) -> None:
    async def put() -> None:
        await web.log.append_many("a", [b"\x80", an_event(1).encode()])
        web.server.core.grew("TST", "a")

    web.run(put)
    with web.subscribe("a?group=desk&start=0&position=true") as reader:
        assert (reader.next().event, reader.next().cloud_event.extensions["meshoffset"]) == ("lost", "1")


def test_a_silent_group_is_kept_alive(shm_dir: Path) -> None:
    options = MeshOptions(heartbeat_s=0.1)
    quiet = HttpOptions(heartbeat_s=3600.0)
    with Web(shm_dir, None, quiet, options=options) as web, web.subscribe("a?group=desk") as reader:
        for _ in range(10):
            assert reader.block().comments == [""]
        web.publish("a", an_event(1))
        assert reader.ids(1) == ["e1"]


def test_members_that_leave_are_forgotten(web: Web) -> None:
    for _ in range(5):
        web.subscribe("a?group=desk").close()
    everybody_left(web)


def test_a_client_whose_entry_changes_leaves_the_group(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS) as web, web.subscribe("orders/*?group=desk", who="shop") as reader:
        web.see(lambda: web.server.reconsider(frozenset({"shop"})))
        assert [sent.event for sent in reader.rest()] == ["end"]


def test_a_group_that_has_too_many_connections_is_told_to_come_again(shm_dir: Path) -> None:
    with Web(shm_dir, options=MeshOptions(max_connections=0)) as web:
        assert web.ask("GET", "/topics/a?group=desk").problem == (503, "fail", "")
        assert web.ask("GET", "/topics/a?group=desk&start=never").problem == (400, "fail", "")
