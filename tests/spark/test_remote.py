"""A log over a server is what it is where it lies: topics, bounds, times and rows, gaps and all."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from echomesh.errors import BadOption, DataLoss, LogBehind, LogCorrupt, NotAuthorized, UnknownTopic
from echomesh.events import Event
from echomesh.log import TopicLog, arrow
from echomesh.mesh.access import Access
from echomesh.mesh.passwords import PasswordHash
from echomesh.spark import options, remote
from echomesh.spark.local import LocalReach
from echomesh.spark.reach import Range, Way
from echomesh.spark.remote import ServerReach, ServerWay
from tests.mesh.support import Running, serving

SECRET = PasswordHash.of("hush-hush").text
ACCESS = Access.parse(f"""
[clients.spark]
password = "{SECRET}"
environments = ["TST"]
subscribe = ["orders/**"]
""")
SIZES = [0, 1, 300, 70_000, 3 << 20, 10, 5 << 20, 100] + [400] * 20_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with two topics, and one that the client may not read."""
    with TopicLog(tmp_path / "data") as log:
        for topic in ("orders/a", "orders/b", "private"):
            sizes = SIZES if topic == "orders/a" else SIZES[:3]
            events = [Event(type="t", source="/s", id=str(i), data=b"x" * size) for i, size in enumerate(sizes)]
            log.append_many(topic, [event.encode() for event in events])
    (tmp_path / "password").write_text("hush-hush\n")
    (tmp_path / "password").chmod(0o600)
    return tmp_path / "data"


def run(directory: Path, test: Callable[[Running, ServerReach], None]) -> None:
    """Runs a test beside a server on the directory."""

    async def inside() -> None:
        async with serving(directory, access=ACCESS) as server:
            found = await asyncio.to_thread(lambda: ServerReach(chosen(directory, server)))
            try:
                await asyncio.to_thread(test, server, found)
            finally:
                found.close()
                while remote._sessions:
                    remote._sessions.popitem()[1].close()

    asyncio.run(inside())


def chosen(directory: Path, server: Running, **more: str) -> options.SourceOptions:
    given = {"subscribe": "orders/**", "server": f"127.0.0.1:{server.port}", "clientId": "spark"}
    return options.parse({**given, "passwordFile": str(directory.parent / "password"), **more})


def rows(way: Way, topic: str, start: int, until: int, columns: list[str] | None = None) -> pa.Table:
    builder = arrow.Builder(topic, columns)
    return arrow.table([*way.scan(topic, start, until, builder), *builder.rest()], columns)


def test_the_driver_sees_the_same_as_where_the_log_lies(directory: Path) -> None:
    def test(server: Running, found: ServerReach) -> None:
        local = LocalReach(str(directory), "TST")
        assert found.log_id == local.log_id
        filters, names = ["orders/*", "orders/a", "private"], ["orders/a", "orders/b"]
        assert list(found.bounds(filters)) == names
        assert found.bounds(filters) == local.bounds(names)
        assert found.bounds(["orders/none"]) == local.bounds(["orders/none"]) == {}
        for time_us in (0, 1 << 52):
            assert found.at_time(names, time_us) == local.at_time(names, time_us)
        ranges = [Range("orders/a", 8, 1000), Range("orders/b", 0, 3)]
        assert found.sizes(ranges) == pytest.approx(local.sizes(ranges), rel=0.2)
        local.close()

    run(directory, test)


def test_a_task_gets_the_same_rows_as_where_the_log_lies(directory: Path) -> None:
    def test(server: Running, found: ServerReach) -> None:
        local, way = LocalReach(str(directory), "TST"), found.way()
        for start, until, columns in (
            (0, len(SIZES), None),
            (0, 8, ["offset", "data"]),
            (7, 9_000, ["id", "topic"]),
            (5, 6, None),
        ):
            assert rows(way, "orders/a", start, until, columns) == rows(local.way(), "orders/a", start, until, columns)
        assert len(remote._sessions) == 1  # one connection for all
        local.close()

    run(directory, test)


def test_a_connection_that_broke_is_made_again_with_the_newest_ticket(directory: Path) -> None:
    def test(server: Running, found: ServerReach) -> None:
        before, after = found.way(), found.way()
        assert before.ticket != after.ticket or before == after
        rows(before, "orders/b", 0, 3)
        loop = server.server._loop
        for connection in list(server.server.core.connections):
            loop.call_soon_threadsafe(connection.abort)
        loop.call_soon_threadsafe(server.server.flush_soon)
        assert rows(after, "orders/b", 0, 3).num_rows == 3

    run(directory, test)


def test_what_a_task_carries_is_small_and_shows_no_secret(directory: Path) -> None:
    def test(server: Running, found: ServerReach) -> None:
        way = found.way()
        assert "emt1." not in f"{way!r} {way} {found!r}"
        copy: ServerWay = pickle.loads(pickle.dumps(way))
        assert copy == way
        assert len(pickle.dumps(way)) < 2000
        assert b"hush" not in pickle.dumps(way)
        with pytest.raises(NotAuthorized):
            rows(ServerWay(way.server, "spark", "PRD", "", way.ticket, False, way.log_id), "orders/a", 0, 1)

    run(directory, test)


def test_gaps_are_named(directory: Path) -> None:
    segment = max((directory / "topics").rglob("*.seg"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    at = data.rindex(b"x" * 390)
    data[at] ^= 1
    segment.write_bytes(data)

    def test(server: Running, found: ServerReach) -> None:
        way = found.way()
        with pytest.raises(LogCorrupt) as corrupt:
            rows(way, "orders/a", 0, len(SIZES))
        assert 8 < corrupt.value.first <= corrupt.value.last < len(SIZES)
        assert rows(way, "orders/a", 8, corrupt.value.first).num_rows == corrupt.value.first - 8
        with pytest.raises(LogBehind):
            rows(way, "orders/b", 0, 4)
        with pytest.raises(UnknownTopic):
            rows(way, "orders/none", 0, 1)
        elsewhere = ServerWay(way.server, way.client_id, way.environment, way.scope, way.ticket, way.trust, "00" * 16)
        with pytest.raises(DataLoss, match="another log"):
            rows(elsewhere, "orders/b", 0, 3)

    run(directory, test)


def test_a_password_file_that_cant_be_used_is_named_and_not_shown(directory: Path) -> None:
    def test(server: Running, found: ServerReach) -> None:
        password = directory.parent / "password"
        password.write_text("wrong\n")
        with pytest.raises(NotAuthorized) as refused:
            ServerReach(chosen(directory, server))
        assert "wrong\n" not in str(refused.value)
        password.write_text("\n")
        with pytest.raises(BadOption, match="no password in its first line"):
            ServerReach(chosen(directory, server))
        password.unlink()
        with pytest.raises(BadOption, match="can't be read"):
            ServerReach(chosen(directory, server))

    run(directory, test)
