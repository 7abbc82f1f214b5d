"""A Spark driver in a process of its own, which reads a topic and writes another one, and may be killed anywhere.

    python -m tests.spark.driver '{"source": {...}, "sink": {...}, "checkpoint": "...", "kill": "...", "place": "..."}'

`kill` names points (with + between them) of the first batch that gets there; `place` is where notes are left. With
"once" it ends when all that there was is written, else it goes on until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql.types import StructType

from echomesh.frames import framed
from echomesh.mesh.bodies import Commit
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.log_bodies import AskOffsets
from echomesh.mesh.protocol import encode
from echomesh.spark import sink_options
from echomesh.spark.remote import connect
from echomesh.spark.sink import Done, StreamWriter
from pyspark_echomesh import DefaultSource


class Killer(StreamWriter):
    """The sink, with points at which it ends what it runs in."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {key: value for key, value in options.items() if key.lower() not in ("kill", "place")}
        super().__init__(sink_options.parse(given, streaming=True))
        self.kill = options.get("kill", "")
        self.place = Path(options["place"])

    def first(self, point: str) -> bool:
        """Whether this is the point, and nobody has been here before."""
        if point not in self.kill.split("+"):
            return False
        try:
            (self.place / f"was-at-{point}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def end_driver(self) -> None:
        """Kills the JVM and the Python process that started it."""
        for pid in json.loads((self.place / "pids").read_text()):
            os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Iterator[Any]) -> Done:
        """Stages the rows of a task."""
        if self.first("worker"):

            def broken() -> Iterator[Any]:
                yield next(iterator)
                os.kill(os.getpid(), signal.SIGKILL)

            return super().write(broken())
        done = super().write(iterator)
        if self.first("retry"):
            raise RuntimeError("a task that fails when all its rows are staged")
        context = TaskContext.get()
        assert context is not None
        if self.kill == "slow" and context.attemptNumber() == 0 and context.partitionId() == 0:
            time.sleep(60)  # only a speculative copy of the task is quick
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Commits, or ends just then."""
        if self.first("after-stage"):
            self.end_driver()
        for point in ("before-record", "before-reply"):
            if self.first(point):
                self.ask_and_die(messages, whole=point == "before-reply")
        late = "after-reply" in self.kill
        before = self.end_of_topic() if late else 0
        super().commit(messages, batchId)
        # A batch that was committed before the last driver died changes nothing now: the next one is meant.
        if late and self.end_of_topic() > before and self.first("after-reply"):
            self.end_driver()

    def end_of_topic(self) -> int:
        """How many rows everybody sees."""
        session = connect(self.options, Purpose.PUBLISH)
        try:
            latest: int = session.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", self.options.topic or "")).latest
            return latest
        finally:
            session.close()

    def ask_and_die(self, messages: list[Any], *, whole: bool) -> None:
        """Sends the request to commit, or only a part of it; dies when the server has done it, or at once."""
        session = connect(self.options, Purpose.PUBLISH)
        about, before = messages[0].about, self.end_of_topic()
        session.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", self.options.topic or ""))
        stages = [stage for message in messages for stage in message.stages]
        names, rows = [stage.stage for stage in stages], [stage.rows for stage in stages]
        checksums = [stage.checksum for stage in stages]
        body = Commit("", "", about.writer, about.epoch, about.run, names, rows, checksums)
        body.client_id, body.session_id = session.hello.client_id, session._session_id
        frame = framed(encode(Command.COMMIT_REQUEST, "commit", body))
        assert session._socket is not None
        session._socket.sendall(frame if whole else frame[:-1])
        if whole:
            while self.end_of_topic() == before:
                time.sleep(0.01)
        self.end_driver()


class Killing(DefaultSource):
    """`format("killing")`."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format()`."""
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Killer:
        """The sink that kills."""
        return Killer(self.options)


def main(wanted: dict[str, Any]) -> None:
    """Runs the query."""
    from echomesh.spark import session

    place = Path(wanted["place"])
    config = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": 2,
        # A driver that dies before its first batch leaves a file, over which Spark would stumble.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        **wanted.get("config", {}),
    }
    spark = session("driver", master=wanted.get("master", "local[2,4]"), config=config)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Killing)
    gateway = SparkContext._gateway
    assert gateway is not None
    (place / "pids").write_text(json.dumps([gateway.proc.pid, os.getpid()]))
    rows = spark.readStream.format("echomesh").options(startingOffsets="earliest", **wanted["source"]).load()
    options = {**wanted["sink"], "kill": wanted.get("kill", ""), "place": str(place)}
    rows = rows.selectExpr("data", "id").repartition(2)
    writer = rows.writeStream.format("killing").options(**options).option("checkpointLocation", wanted["checkpoint"])
    trigger: dict[str, Any] = {"availableNow": True} if wanted.get("once", True) else {"processingTime": "0 seconds"}
    query = writer.trigger(**trigger).start()
    (place / "started").touch()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
