"""Pipelines in tests: on a real log, in a temporary directory, with real Spark.

from echomesh.spark import testing

def test_large_orders_raise_alerts():
    outputs = testing.run(big_orders, {"orders": [Event(type="order", source="/shop", data={"amount": 1200})]})
    assert [event.data["amount"] for event in outputs.events] == [1200]
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echomesh.errors import UsageError
from echomesh.events import Event
from echomesh.log import LogReader, TopicLog
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.outputs import Table, publishes
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.runner import RunOptions
from echomesh.spark.pipelines.runner import run as run_pipeline
from echomesh.topics import matches, parse_topic

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_QUICK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_RESTARTS: Final = 3  # on a busy machine a worker of Spark's may take longer to start than Spark waits


@dataclass(frozen=True)
class Outputs:
    """What a pipeline has written, by its outputs."""

    topics: Mapping[str, list[Event]]  # by topic: everything that was not an input
    tables: Mapping[str, list[Row]]  # by output

    @property
    def events(self) -> list[Event]:
        """All events that were written, topic by topic."""
        return list(itertools.chain.from_iterable(self.topics.values()))

    @property
    def rows(self) -> list[Row]:
        """The rows of all tables."""
        return list(itertools.chain.from_iterable(self.tables.values()))


def run(pipeline: Pipeline, inputs: Mapping[str, Iterable[Event]], *, spark: SparkSession | None = None) -> Outputs:
    """Runs a pipeline over these events to the end, and gives what it has written.

    The keys of `inputs` are names of the pipeline's inputs, or topics that they subscribe to. `spark` is a session of
    the test's; without one a session is made, which stays for the next tests.
    """
    session = spark or _session()
    with tempfile.TemporaryDirectory(prefix="echomesh-test-") as directory:
        place = Place(data=directory)
        given = {_topic(pipeline, name): list(events) for name, events in inputs.items()}
        with TopicLog(directory) as log:
            for topic, events in given.items():
                log.append_many(topic, events)
        run_pipeline(pipeline, place, RunOptions(once=True, restarts=_RESTARTS, first_wait_s=0.2))
        tables = {name: output for name, output in pipeline.outputs.items() if isinstance(output, Table)}
        return Outputs(_topics(pipeline, directory, given), {n: _rows(session, place, t) for n, t in tables.items()})


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from echomesh.spark.launch import session

    active = SparkSession.getActiveSession()
    return active or session("echomesh testing", master="local[2]", config=_QUICK)


def _topic(pipeline: Pipeline, name: str) -> str:
    """A topic for events of an input: the one that its filter names, or the shortest that it matches."""
    if name in pipeline.inputs:
        segments = pipeline.inputs[name].split(",")[0].split("/")
        named = [("any" if segment == "*" else segment) for segment in segments if segment != "**"]
        return parse_topic("/".join(named) or name)
    topic = parse_topic(name)
    filters = [each for text in pipeline.inputs.values() for each in text.split(",")]
    if not any(matches(each, topic) for each in filters):
        raise UsageError(
            f"{name!r} is no input of {pipeline.name}, nor a topic of one: the inputs are "
            + ", ".join(f"{key} ({text})" for key, text in pipeline.inputs.items())
        )
    return topic


def _topics(pipeline: Pipeline, directory: str, given: Mapping[str, list[Event]]) -> dict[str, list[Event]]:
    writes = any(map(publishes, pipeline.outputs.values()))
    if not writes:
        return {}
    with LogReader(directory) as log:
        names = sorted(topic.name for topic in log.topics())
        read = {name: list(_events(log, name)) for name in names}
    written = {name: events[len(given.get(name, ())) :] for name, events in read.items()}
    return {name: events for name, events in written.items() if events}


def _events(log: LogReader, topic: str) -> Iterator[Event]:
    reader = log.topic(topic)
    for records in reader.follow(reader.earliest, timeout=0):
        yield from (Event.decode(event) for event in records.events())


def _rows(session: SparkSession, place: Place, table: Table) -> list[Row]:
    path = place.table_path(table.name)
    if not Path(path).exists():
        return []
    return place.open_table(table).read(session).collect()
