"""Checkpoints on this machine: without processes, on the disk in time, and Spark's own class goes on with them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from echomesh.spark import jars
from tests.spark.checkpoint_files import MANAGER, OURS, Files, kind, names
from tests.spark.node import events_of, numbers_of
from tests.spark.noted_driver import BATCHES
from tests.spark.support import catch_up, counts, drain, expected, made, opened, rows, stream
from tests.support.counts import count, full_only
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def by_spark(spark: SparkSession) -> Iterator[Any]:
    """Call it with whether queries that start from now on keep their checkpoints as Spark itself does."""

    def choose(itself: bool) -> None:
        spark.conf.unset(MANAGER) if itself else spark.conf.set(MANAGER, OURS)

    yield choose
    choose(False)


def test_a_session_keeps_checkpoints_by_our_class_unless_it_is_told_another(spark: SparkSession) -> None:
    assert spark.conf.get(MANAGER) == OURS
    assert jars.added({})[MANAGER] == OURS
    assert jars.added({MANAGER: "other.Class"})[MANAGER] == "other.Class"


def test_a_jvm_without_our_class_is_not_told_to_use_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "CHECKPOINTS", {MANAGER: "echomesh.NotThere"})
    assert MANAGER not in jars.added({})


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """What processes of a driver did while a query of each kind ran its batches."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    place = tmp_path_factory.mktemp("noted")
    library, said = place / "noting.so", place / "notes"
    source = Path(__file__).with_name("noting.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    said.touch()
    path = os.pathsep.join((str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "LD_PRELOAD": str(library), "NOTES": str(said), "PYTHONPATH": path}
    subprocess.run(
        [sys.executable, "-m", "tests.spark.noted_driver", str(place)], env=environment, cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in said.read_text().splitlines():
        what, _, about = line.partition(" ")
        if about == "begins":
            current = found.setdefault(what, [])
        elif about == "ends":
            current = []
        else:
            current.append((what, about))
    return found


def test_batches_start_no_processes_and_with_sparks_own_class_they_do(notes: dict[str, list[tuple[str, str]]]) -> None:
    started = {name: [about for what, about in found if what == "start"] for name, found in notes.items()}
    assert started["plain"] == []
    assert len(started["spark"]) > 10


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_spark_goes_on(
    notes: dict[str, list[tuple[str, str]]],
) -> None:
    done = [(what, Path(about)) for what, about in notes["plain"] if "/plain/" in about]
    assert len(done) == 3 * 2 * BATCHES  # of each batch offsets and commit
    for at in range(0, len(done), 3):
        (one, unfinished), (two, file), (three, directory) = done[at : at + 3]
        assert (one, two, three) == ("sync", "publish", "sync")
        assert unfinished.name.startswith(f".{file.name}.")
        assert unfinished.name.endswith(".tmp")
        assert unfinished.parent == file.parent == directory
    assert not [about for what, about in notes["spark"] if what == "sync" and "/spark/" in about]


def test_what_a_snapshot_of_the_state_names_is_on_the_disk_before_it(notes: dict[str, list[tuple[str, str]]]) -> None:
    synced, snapshots = set[Path](), 0
    for what, about in notes["state"]:
        path = Path(about)
        if what == "sync":
            synced.add(path)
        elif path.suffix == ".zip" and what == "publish":
            snapshots += 1
            new = [file for file in synced if file.parent == path.with_name("SSTs")]
            assert [file for file in new if file.suffix == ".sst"]
            assert [file for file in new if file.suffix == ".crc"]
            assert path.with_name("SSTs") in synced
            synced.clear()
    assert snapshots == BATCHES


def test_a_query_whose_batch_another_driver_began_is_refused(
    spark: SparkSession, by_spark: Any, data: Path, tmp_path: Path
) -> None:
    for itself in (False, True):
        by_spark(itself)
        place = tmp_path / str(itself)
        with opened(data, duplicate_bytes=0) as log:
            log.append_many("t", made(5))
            query = drained(spark, data, place)
            catch_up(query)
            offsets = place / "checkpoint" / "offsets"
            last = max(int(path.name) for path in offsets.iterdir() if path.name.isdecimal())
            (offsets / str(last + 1)).write_bytes((offsets / str(last)).read_bytes())
            log.append_many("t", made(5))
            with pytest.raises(StreamingQueryException, match="CONCURRENT_STREAM_LOG_UPDATE"):
                catch_up(query)
            query.stop()


def drained(spark: SparkSession, data: Path, place: Path) -> Any:
    """A query into nowhere that goes on."""
    writer = stream(spark, data).writeStream.format("noop")
    return writer.option("checkpointLocation", str(place / "checkpoint")).start()


def test_a_query_with_state_goes_back_and_forth(spark: SparkSession, by_spark: Any, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "query"
    states = place / "checkpoint" / "state"
    with opened(data) as log:
        for round_ in range(4):
            by_spark(round_ % 2 == 0)
            log.append_many("t", made(10, 10 * round_))
            assert counted(spark, data, place)[-1] == 10 * (round_ + 1)
            last = max((place / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
            # The batch is done again by the next one, which makes the same snapshots anew.
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
            assert len(list(states.rglob("*.zip"))) >= round_ + 1


def counted(spark: SparkSession, data: Path, place: Path) -> list[int]:
    """All counts that a query with a checkpoint gives until it has seen everything."""
    found: list[int] = []

    def take(frame: DataFrame, batch: int) -> None:
        found.extend(row["count"] for row in frame.collect())

    rows = stream(spark, data).groupBy("topic").count()
    writer = rows.writeStream.foreachBatch(take).outputMode("update").trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
    return found


@pytest.mark.parametrize(
    ("provider", "version", "made_by_it"), [("RocksDB", 2, "*.changelog.crc"), ("HDFSBacked", 1, "*.delta")]
)
def test_state_of_other_kinds_and_sparks_own_sums_work_on_top(
    spark: SparkSession, data: Path, tmp_path: Path, provider: str, version: int, made_by_it: str
) -> None:
    chosen = {
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": (
            f"org.apache.spark.sql.execution.streaming.state.{provider}StateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(version),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    before = {key: spark.conf.get(key, None) for key in chosen}
    for key, value in chosen.items():
        spark.conf.set(key, value)
    try:
        with opened(data) as log:
            for round_ in range(3):
                log.append_many("t", made(10, 10 * round_))
                assert counted(spark, data, tmp_path) == [10 * (round_ + 1)]
        assert len(list((tmp_path / "checkpoint" / "state").rglob(made_by_it))) >= 3
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def test_a_checkpoint_behind_a_link_works_and_links_are_removed_not_what_they_lead_to(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with opened(data) as log:
        for round_ in range(2):
            log.append_many("t", made(5, 5 * round_))
            drain(stream(spark, data), tmp_path / "link")
    assert rows(spark, tmp_path / "link") == expected("t", range(10))
    assert (tmp_path / "elsewhere" / "checkpoint" / "offsets" / "1").exists()
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "link").symlink_to(tmp_path / "elsewhere")
    Files(spark, tmp_path).delete(outer)
    assert not outer.exists()
    assert (tmp_path / "elsewhere" / "checkpoint" / "offsets" / "1").exists()


def test_what_killed_drivers_did_not_finish_is_not_seen(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    files, checkpoint = Files(spark, tmp_path), tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        files.manager.mkdirs(files.path(checkpoint / name))
        (checkpoint / name / ".0.5f2b7f3c-8d3e-4b43-9f6e-0a4a0c1d2e3f.tmp").write_bytes(b"half of")
        assert files.list(checkpoint / name) == []
    with opened(data) as log:
        log.append_many("t", made(5))
    assert counts(drain(stream(spark, data), tmp_path)) == [5]  # Spark's own class stumbles over it


def test_a_full_disk_fails_the_query_leaves_nothing_and_it_goes_on_with_room(
    spark: SparkSession, data: Path, tmp_path: Path, tmpfs: Path
) -> None:
    files, ballast = Files(spark, tmpfs), tmpfs / "ballast"
    files.write(tmpfs / "1", b"first")
    for replaces in (True, False):
        with pytest.raises(Py4JJavaError) as caught:
            files.write(tmpfs / f"{2 - replaces}", b"x" * (5 << 20), replaces=replaces)
        assert kind(caught.value) == "java.io.IOException"
        assert names(tmpfs) == ["1"]
    assert files.read(tmpfs / "1") == b"first"
    late = files.begun(tmpfs / "2", b"in the buffer")
    fill(ballast)
    with pytest.raises(Py4JJavaError) as caught:
        late.close()
    assert kind(caught.value) == "java.io.IOException"
    with pytest.raises(Py4JJavaError):
        late.close()  # and does not say that all is well when it is asked again
    late.cancel()
    assert names(tmpfs) == ["1", "ballast"]
    ballast.unlink()
    with opened(data) as log:
        log.append_many("t", made(5))
        writer = stream(spark, data).writeStream.format("parquet").option("checkpointLocation", str(tmpfs / "c"))
        query = writer.start(str(tmp_path / "rows"))
        catch_up(query)
        fill(ballast)
        log.append_many("t", made(5, 5))
        with pytest.raises(StreamingQueryException, match="No space left"):
            catch_up(query)
        assert not [name for name in names(tmpfs / "c") if name.endswith(".tmp")]
        ballast.unlink()
        writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
    assert rows(spark, tmp_path) == expected("t", range(10))


def fill(ballast: Path) -> None:
    """Takes all room that is left."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert ballast.stat().st_size > 0


@full_only
def test_drivers_that_are_killed_at_any_time_leave_each_row_once(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    chosen, written, out = random.Random(5), 0, tmp_path / "out"
    with opened(data) as log:
        for number in range(count(1, 8)):
            (tmp_path / str(number)).mkdir()
            driver = started(data, out, tmp_path / str(number))
            commits, until = tmp_path / "checkpoint" / "commits", None
            before = set(commits.glob("[0-9]*"))
            while until is None or time.monotonic() < until:
                log.append_many("in", made(5, written))
                written += 5
                time.sleep(chosen.uniform(0, 0.1))
                if until is None and set(commits.glob("[0-9]*")) > before:
                    until = time.monotonic() + chosen.uniform(0.2, 1.5)
            for pid in json.loads((tmp_path / str(number) / "pids").read_text()):
                os.kill(pid, signal.SIGKILL)
            driver.wait()
        found = numbers_of(events_of(out, "out"))
        assert found
        assert len(set(found)) == len(found)
        writer = stream(spark, data, "in").selectExpr("data", "id").writeStream.format("echomesh")
        writer = writer.options(topic="out", path=str(out), checkpointLocation=str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert numbers_of(events_of(out, "out")) == list(range(written))


def started(data: Path, out: Path, place: Path) -> subprocess.Popen[bytes]:
    """A driver whose query runs, from one topic to another."""
    wanted = {
        "source": {"subscribe": "in", "path": str(data), "maxOffsetsPerTrigger": "20"},
        "sink": {"topic": "out", "path": str(out)},
        "checkpoint": str(place.parent / "checkpoint"),
        "place": str(place),
        "once": False,
        "config": {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "true"},
    }
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "tests.spark.driver", json.dumps(wanted)]
    with (place / "errors").open("w") as errors:
        driver = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": paths}, stdout=errors, stderr=errors, cwd=ROOT
        )
    while not (place / "started").exists():
        assert driver.poll() is None, (place / "errors").read_text()
        time.sleep(0.05)
    return driver
