"""The Spark session of a pipeline: what Spark and Java have to say goes to a file, not over the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echomesh.spark import submit
from echomesh.spark.launch import session
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.registry import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    directory = place.directory(pipeline.name)
    entry.log = str(directory / "spark.log")
    spark = _quiet_session(pipeline, place, directory)
    try:
        yield spark
    finally:
        spark.stop()


def _quiet_session(pipeline: Pipeline, place: Place, directory: Path) -> SparkSession:
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    java = place.config.get(_JAVA, "-XX:+UseParallelGC")
    given = {
        **_SETTINGS,
        **_shipped(place, directory),
        **place.config,
        _JAVA: f"{java} -Dlog4j2.configurationFile=file:{log4j}",
    }
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors of the user's are told by us
    before = signal.getsignal(signal.SIGINT)
    with _output_to(directory / "spark.log"):
        spark = session(f"echomesh {pipeline.name}", master=place.master, config=given)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # PySpark has put its own there, which ends all jobs
    return spark


def _shipped(place: Place, directory: Path) -> dict[str, str]:
    """Executors of a cluster get what they need with the application, unless somebody has seen to that."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not place.is_cluster or submitted or "spark.archives" in place.config:
        return {}
    return submit.config(submit.archive(directory / f"{submit.NAME}.tar.gz"))


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
