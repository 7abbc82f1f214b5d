"""The Spark session of a pipeline: what Spark and Java have to say goes to a file, not over the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echomesh.spark import submit
from echomesh.spark.launch import session
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.registry import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG: Final = "spark.log"
_JAVA: Final = "spark.driver.extraJavaOptions"
_SETTINGS: Final[Mapping[str, str]] = {
    # A driver that dies before its first batch leaves a file, over which Spark would stumble.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",  # so that a lag that is gone shows soon
}
_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@contextlib.contextmanager
def opened(pipeline: Pipeline, place: Place, entry: Entry) -> Iterator[SparkSession]:
    """The session that is there, or one for as long as this holds."""
    there = _there()
    if there is not None:
        yield there
        return
    directory = place.directory(pipeline.name)
    entry.log = str(directory / LOG)
    with shared(f"echomesh {pipeline.name}", place, directory, pipeline.packages) as spark:
        yield spark


def _there() -> SparkSession | None:
    """The session of this thread, or the one that another has opened for all."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        try:
            # The JVM looks for sources and sinks in the session that is active in a thread, which this call makes it.
            SparkSession.active().createDataFrame([], "nothing INT")
        except PySparkException:
            return None
    return SparkSession.active()


@contextlib.contextmanager
def shared(name: str, place: Place, directory: Path, packages: Sequence[str] = ()) -> Iterator[SparkSession]:
    """A session for as long as this holds; pipelines that run meanwhile in threads of this process share it."""
    spark = _quiet_session(name, place, directory, packages)
    try:
        yield spark
    finally:
        spark.stop()


def _quiet_session(name: str, place: Place, directory: Path, packages: Sequence[str]) -> SparkSession:
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    java = place.config.get(_JAVA, "-XX:+UseParallelGC")
    given = {
        **_SETTINGS,
        **_shipped(place, directory, packages),
        **place.config,
        _JAVA: f"{java} -Dlog4j2.configurationFile=file:{log4j}",
    }
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors of the user's are told by us
    before = signal.getsignal(signal.SIGINT)
    with _output_to(directory / LOG):
        spark = session(name, master=place.master, config=given)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # PySpark has put its own there, which ends all jobs
    return spark


def _shipped(place: Place, directory: Path, packages: Sequence[str]) -> dict[str, str]:
    """Executors of a cluster get what they need with the application, unless somebody has seen to that."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not place.is_cluster or submitted or "spark.archives" in place.config:
        return {}
    return submit.config(submit.archive(directory / f"{submit.NAME}.tar.gz", packages=packages))


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """What is started meanwhile writes to this file instead of the terminal, for as long as it lives."""
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(target, number)
        yield
    finally:
        for number, handle in kept.items():
            os.dup2(handle, number)
            os.close(handle)
        os.close(target)
