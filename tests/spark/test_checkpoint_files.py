"""Single files of checkpoints: whole or not there, as Spark's own class has them, and that one elsewhere."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from echomesh.spark import jars
from tests.spark.checkpoint_files import Files, a_jvm, kind, names
from tests.support.counts import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Where a checkpoint is to be."""
    return tmp_path / "checkpoint"


@pytest.fixture
def ours(spark: SparkSession, checkpoint: Path) -> Files:
    """Files of a checkpoint that is there."""
    made = Files(spark, checkpoint)
    made.manager.createCheckpointDirectory()
    return made


@pytest.fixture
def sparks(spark: SparkSession, checkpoint: Path) -> Files:
    """The same files as Spark itself keeps them."""
    return Files(spark, checkpoint, ours=False)


def test_what_exists_is_replaced_only_if_asked_for(ours: Files, sparks: Files, checkpoint: Path) -> None:
    ours.write(checkpoint / "1", b"first")
    for files in (ours, sparks):
        with pytest.raises(Py4JJavaError) as caught:
            files.write(checkpoint / "1", b"second")
        assert kind(caught.value) == EXISTS
    assert ours.read(checkpoint / "1") == b"first"
    ours.write(checkpoint / "1", b"third", replaces=True)
    assert ours.read(checkpoint / "1") == sparks.read(checkpoint / "1") == b"third"
    ours.delete(checkpoint / "1")
    ours.delete(checkpoint / "1")
    for files in (ours, sparks):
        with pytest.raises(Py4JJavaError) as caught:
            files.read(checkpoint / "1")
        assert kind(caught.value) == "java.io.FileNotFoundException"
        with pytest.raises(Py4JJavaError) as caught:
            files.write(checkpoint / "no" / "1", b"")
        assert kind(caught.value) == "java.io.FileNotFoundException"
        with pytest.raises(Py4JJavaError) as caught:
            files.list(checkpoint / "no")
        assert kind(caught.value) == "java.io.FileNotFoundException"


def test_what_is_given_up_leaves_nothing_behind(ours: Files, checkpoint: Path) -> None:
    ours.write(checkpoint / "1", b"first")
    given_up = ours.begun(checkpoint / "1", b"x" * 100_000, replaces=True)
    assert len(names(checkpoint)) == 2
    given_up.cancel()
    given_up.close()
    with pytest.raises(Py4JJavaError):
        given_up.write(b"more")
    refused = ours.begun(checkpoint / "1", b"second")
    with suppress(Py4JJavaError):
        refused.close()
    refused.cancel()
    assert names(checkpoint) == ["1"]
    assert ours.read(checkpoint / "1") == b"first"


def test_of_drivers_that_write_a_batch_at_once_one_wins(spark: SparkSession, ours: Files, tmp_path: Path) -> None:
    package: Any = ours.jvm.org.apache.spark.sql.execution.streaming.checkpointing
    metadata = package.CommitMetadata
    place, drivers = str(tmp_path / "log"), 3
    logs = [package.CommitLog(spark._jsparkSession, place, False) for _ in range(drivers)]
    ends: Counter[str] = Counter()
    for batch in range(count(10, 500)):
        together, ended = threading.Barrier(drivers), list[str]()

        def write(log: Any, batch: int = batch, together: Any = together, ended: list[str] = ended) -> None:
            entry = metadata(0)
            together.wait()
            try:
                ended.append("won" if log.add(batch, entry) else "lost")
            except Py4JJavaError as error:
                ended.append(kind(error))

        threads = [threading.Thread(target=write, args=(log,)) for log in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ended.count("won") == 1
        ends.update(ended)
    assert set(ends) <= {"won", "lost", "org.apache.spark.SparkConcurrentModificationException"}
    assert len(list((tmp_path / "log").iterdir())) == ends["won"]


def test_whoever_is_killed_while_writing_leaves_whole_files_or_none(
    spark: SparkSession, ours: Files, checkpoint: Path
) -> None:
    chosen, next_, size = random.Random(3), 0, 40_000
    for _ in range(count(3, 50)):
        with a_jvm(jars.jar()) as (jvm, process):
            package = jvm.org.apache.hadoop
            manager = jvm.echomesh.Checkpoints(package.fs.Path(str(checkpoint)), package.conf.Configuration())
            threading.Timer(chosen.uniform(0.2, 0.6), process.kill).start()
            with suppress(Py4JError, OSError):
                while True:
                    stream_ = manager.createAtomic(package.fs.Path(str(checkpoint / str(next_))), False)
                    for _ in range(4):
                        stream_.write(b"%04d" % next_ * (size // 4))
                    stream_.close()
                    next_ += 1
            process.wait()
        there = sorted(int(Path(path).name) for path, _, _ in ours.list(checkpoint))
        assert there in (list(range(next_)), list(range(next_ + 1)))  # who was killed did not hear of the last one
        next_ = len(there)
        for number in there:
            assert (checkpoint / str(number)).read_bytes() == b"%04d" % number * size
    assert next_ > 0


def test_sums_of_what_is_replaced_or_removed_go_too(ours: Files, sparks: Files, checkpoint: Path) -> None:
    for number in range(4):
        sparks.write(checkpoint / str(number), b"before %d" % number)
    assert len(list(checkpoint.glob(".*.crc"))) == 4
    ours.write(checkpoint / "0", b"another", replaces=True)
    ours.delete(checkpoint / "1")
    (checkpoint / "2").unlink()  # and its sums stay, as when Hadoop is killed
    ours.write(checkpoint / "2", b"another, too")
    assert sorted(path.name for path in checkpoint.glob(".*.crc")) == [".3.crc"]
    sparks.write(checkpoint / "1", b"again")
    wanted = {"0": b"another", "1": b"again", "2": b"another, too", "3": b"before 3"}
    for read in (ours.read, sparks.read, sparks.read_by_hadoop):
        assert {name: read(checkpoint / name) for name in wanted} == wanted
    assert len(ours.list(checkpoint)) == len(sparks.list(checkpoint)) == 4
    (checkpoint / "3").write_bytes(b"damaged.")
    with pytest.raises(Py4JJavaError) as caught:  # as with others of these sums
        sparks.read_by_hadoop(checkpoint / "3")
    assert kind(caught.value) == "org.apache.hadoop.fs.ChecksumException"


def test_names_of_all_kinds_are_listed_and_read_as_by_spark(ours: Files, sparks: Files, checkpoint: Path) -> None:
    for number, name in enumerate(["a b", "ü-日本", "100%25", "a+b", "#?", "%"]):
        inside = checkpoint / name
        for files in (ours, sparks):
            files.manager.mkdirs(files.path(inside / "deep"))
            files.manager.mkdirs(files.path(inside / "deep"))
        ours.write(inside / name, b"%d" % number)
        sparks.write(inside / f"{name} too", b"%d too" % number)
        assert ours.list(inside) == sparks.list(inside)
        assert len(ours.list(inside)) == 3
        for files in (ours, sparks):
            assert files.read(inside / name) == b"%d" % number
            assert files.read(inside / f"{name} too") == b"%d too" % number
            assert files.manager.exists(files.path(inside / name))
            assert not files.manager.exists(files.path(inside / "none"))
    (checkpoint / "with:colon").touch()
    assert ours.list(checkpoint) == sparks.list(checkpoint)
    assert len(ours.list(checkpoint)) == 7
    ours.delete(checkpoint / "ü-日本")
    assert not (checkpoint / "ü-日本").exists()


def test_files_and_directories_have_the_rights_that_the_umask_leaves(ours: Files, checkpoint: Path) -> None:
    ours.manager.mkdirs(ours.path(checkpoint / "offsets"))
    ours.write(checkpoint / "offsets" / "0", b"")
    mask = os.umask(0)
    os.umask(mask)  # which the JVM inherited
    assert (checkpoint / "offsets").stat().st_mode & 0o777 == 0o777 & ~mask
    assert (checkpoint / "offsets" / "0").stat().st_mode & 0o777 == 0o666 & ~mask


def test_places_of_this_machine_are_named_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    for path in (tmp_path / "a b", f"file:{tmp_path}/c", f"file://{tmp_path}/d"):
        both = [Files(spark, path, ours=ours) for ours in (True, False)]
        ours, theirs = (str(files.manager.createCheckpointDirectory()) for files in both)
        assert ours == theirs
        assert Path(ours.removeprefix("file:")).is_dir()
        assert both[0].manager.isLocal()


def test_other_file_systems_are_kept_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    views = {"fs.viewfs.mounttable.v.link./in": f"file:{target}"}
    files = Files(spark, "viewfs://v/in", settings=views)
    stream_ = files.begun("viewfs://v/in/1", b"here")
    assert stream_.getClass().getName().startswith("org.apache.spark.")
    stream_.close()
    assert files.read("viewfs://v/in/1") == b"here"
    assert names(target) == [".1.crc", "1"]
    assert files.manager.isLocal() == Files(spark, "viewfs://v/in", ours=False, settings=views).manager.isLocal()
    by_default = Files(spark, "/in/deep", settings={**views, "fs.defaultFS": "viewfs://v/"})
    assert by_default.read("/in/1") == b"here"
    assert by_default.manager.createCheckpointDirectory().toString() == "viewfs://v/in/deep"
    # One that Spark can use in the older of Hadoop's two ways only.
    older = {"fs.older.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}
    assert Files(spark, "older:/in", settings=older).manager.isLocal()
    with pytest.raises(Py4JJavaError, match="nobody"):
        Files(spark, "nobody:/in")
