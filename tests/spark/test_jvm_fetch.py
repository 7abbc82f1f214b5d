"""Tasks fetch a server's records inside the JVM, and find there what Python would find."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.events import Event
from tests.log.event_forms import alike, forms
from tests.mesh.proxy import Proxy, proxy
from tests.spark.node import NodeProcess
from tests.spark.support import inside, made, opened, read
from tests.support.certificates import Authority
from tests.support.counts import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SIZES = [0, 1, 300, 70_000, 3 << 20, 10, 5 << 20, 100, *[400] * 20_000, (63 << 20), 7]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A server; tests fill its log before they start it."""
    prepared = NodeProcess(tmp_path / "node")
    yield prepared
    prepared.stop()


def fetched(spark: SparkSession, node: NodeProcess, subscribe: str = "**", **options: str) -> DataFrame:
    return spark.read.format("echomesh").options(subscribe=subscribe, **{**node.options, **options}).load()


def by_python(frame: DataFrame) -> int:
    """The bytes that Python workers gave to the tasks of a query that has been run."""
    plan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    found = plan.metrics().get("pythonDataReceived")
    return int(found.get().value()) if found.isDefined() else 0


def test_all_sizes_are_fetched_without_python(spark: SparkSession, node: NodeProcess) -> None:
    with opened(node.data) as log:
        events = [Event(type="t", source="/s", id=str(i), data=b"x" * size) for i, size in enumerate(SIZES)]
        log.append_many("a", events)
    with node:
        frame = fetched(spark, node).selectExpr("offset", "id", "crc32(data) sum", "timestamp")
        local = read(spark, node.data).selectExpr("offset", "id", "crc32(data) sum", "timestamp")
        assert inside(frame)
        got = frame.sort("offset").collect()
        assert [row.offset for row in got] == list(range(len(SIZES)))
        assert got == local.sort("offset").collect()
        whole = fetched(spark, node)
        whole.write.format("noop").mode("overwrite").save()
        some = fetched(spark, node, startingOffsets='{"a": 4}', endingOffsets='{"a": 9000}')
        assert some.selectExpr("min(offset)", "max(offset)", "count(*)").collect()[0] == (4, 8999, 8996)


def test_no_python_worker_is_asked_for_what_the_jvm_can_fetch(spark: SparkSession, node: NodeProcess) -> None:
    with opened(node.data) as log:
        log.append_many("a", made(3000))
    with node:
        frame, other = fetched(spark, node), fetched(spark, node, reader="python")
        assert (inside(frame), inside(other)) == (True, False)
        assert frame.collect() == other.collect()
        assert by_python(frame) == 0
        assert by_python(other) > 0


def test_odd_events_and_thousands_of_topics(spark: SparkSession, node: NodeProcess) -> None:
    strange, topics = list(forms()), count(300, 3000)
    with opened(node.data, duplicate_bytes=0) as log:
        log.append_many("strange", [*strange, *alike(500, random.Random(3))])
        for number in range(topics):
            log.append_many(f"t/{number}", made(number % 7 + 1))
    with node:
        frame, local = fetched(spark, node, failOnDataLoss="false"), read(spark, node.data, failOnDataLoss="false")
        assert inside(frame)
        order = ("topic", "offset")
        assert frame.sort(*order).toArrow() == local.sort(*order).toArrow()
        assert frame.where("topic like 't/%'").count() == sum(number % 7 + 1 for number in range(topics))


def test_a_connection_that_the_server_closed_while_it_was_idle_is_made_again(
    spark: SparkSession, node: NodeProcess
) -> None:
    with opened(node.data) as log:
        log.append_many("a", made(100))
    with node:
        assert fetched(spark, node).count() == 100
        node.stop()
        node.start()
        frame = fetched(spark, node)
        assert frame.count() == 100
        assert by_python(frame) == 0


def test_a_server_that_is_away_for_a_while_is_waited_for(spark: SparkSession, node: NodeProcess) -> None:
    with opened(node.data) as log:
        log.append_many("a", made(100))
    with node:
        frame = fetched(spark, node)
        frame._jdf.queryExecution().executedPlan()  # planned while it was there
        node.stop(signal.SIGKILL)
        threading.Timer(1.0, node.start).start()
        assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(100))


def test_gaps_are_told_as_by_python(spark: SparkSession, node: NodeProcess) -> None:
    with opened(node.data) as log:
        log.append_many("a", [Event(type="t", source="/s", id=str(i), data=b"x" * 400) for i in range(3000)])
    segment = max((node.data / "topics").rglob("*.seg"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"x" * 390, 0, len(data) // 3)] ^= 1
    segment.write_bytes(data)
    with node:
        with pytest.raises(Exception, match=r"corrupt|damaged") as raised:
            fetched(spark, node).select("offset").collect()
        assert "DataLoss" in str(raised.value)
        frame = fetched(spark, node, failOnDataLoss="false").select("offset")
        assert inside(frame)
        other = fetched(spark, node, failOnDataLoss="false", reader="python").select("offset")
        assert sorted(frame.collect()) == sorted(other.collect())
        assert frame.count() == 2999


def test_tls_is_spoken_inside_the_jvm_too(spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    secure = NodeProcess(tmp_path / "node", tls=(authority.issue("node", "127.0.0.1"), authority.pem))
    with opened(secure.data) as log:
        log.append_many("a", [Event(type="t", source="/s", id=str(i), data=b"x" * 400) for i in range(10_000)])
    with secure:
        frame = fetched(spark, secure)
        assert inside(frame)
        rows = frame.select("offset", "id").sort("offset").collect()
        assert [(row.offset, row.id) for row in rows] == [(i, str(i)) for i in range(10_000)]
        whole = fetched(spark, secure)
        assert len(whole.collect()) == 10_000
        assert by_python(whole) == 0


def test_a_certificate_for_another_host_is_not_taken(spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    secure = NodeProcess(tmp_path / "node", tls=(authority.issue("node", "127.0.0.1"), authority.pem))
    with opened(secure.data) as log:
        log.append_many("a", made(10))
    with secure:
        frame = fetched(spark, secure).select("offset")
        frame._jdf.queryExecution().executedPlan()  # planned while it was the right one
        secure.stop()
        other = authority.issue("other", "10.1.2.3")
        secure.config.write_text(f'[tls]\ncertificate = "{other.pem}"\nkey = "{other.key}"\n')
        secure.start()
        with pytest.raises(Exception, match="certificate"):
            frame.collect()


class Liar(Proxy):
    """A proxy that changes some bytes of what the server says, on the next connection that is made."""

    def __init__(self, target: int, chosen: random.Random) -> None:
        super().__init__(target)
        self.chosen = chosen
        self.lies = 0
        self.told = 0
        self.pumps = 0  # two for each connection: what is said to the server, and what it says

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pumps += 1
        if not self.lies or self.pumps % 2:
            await super()._pump(reader, writer)
            return
        self.lies -= 1
        while data := bytearray(await reader.read(1 << 16)):
            for _ in range(self.chosen.randrange(3)):
                # Mostly where lengths and names are.
                at = self.chosen.randrange(min(len(data), len(data) if self.chosen.random() < 0.3 else 250))
                data[at] = self.chosen.randrange(256)
                self.told += 1
            writer.write(data)
            await writer.drain()
            if self.chosen.random() < 0.5:  # else the other end might wait for as much as a wrong length says
                break
        writer.close()


@contextmanager
def liar(node: NodeProcess, chosen: random.Random) -> Iterator[Liar]:
    """In a thread of its own."""
    started, ended, found = threading.Event(), asyncio.Event(), list[Liar]()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with proxy(node.port, made=Liar(node.port, chosen)) as serving:
            assert isinstance(serving, Liar)
            found.append(serving)
            started.set()
            await ended.wait()
            serving.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join()


@pytest.mark.timeout(1800)
def test_what_a_server_says_wrong_is_noticed(spark: SparkSession, node: NodeProcess) -> None:
    with opened(node.data) as log:
        log.append_many("a", [Event(type="t", source="/s", id=str(i), data=b"%d" % i * 40) for i in range(2000)])
    with node, liar(node, random.Random(8)) as between:
        columns = ("offset", "id", "data")
        wanted = sorted(fetched(spark, node).select(*columns).collect())
        for number in range(count(20, 1000)):
            # Each time with other rights, so that no idle connection is used.
            frame = fetched(spark, node, f"a,none/{number}", server=f"127.0.0.1:{between.port}")
            frame = frame.select(*columns)
            frame._jdf.queryExecution().executedPlan()  # the driver's part is over
            between.lies = 1
            assert sorted(frame.collect()) == wanted  # Python asks again
            assert between.lies == 0
        assert between.told > count(20, 1000)
