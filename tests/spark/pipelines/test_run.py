"""Pipelines that run: what they write, how they go on, fail, start again and stop. Real Spark, real logs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echomesh.errors import BadPipeline, PipelineBusy, PipelineFailed, UsageError
from echomesh.events import Event
from echomesh.log import TopicLog
from echomesh.spark import Pipeline, batches, dead_letters, parse_json, pipeline, table, testing, topic
from echomesh.spark.pipelines.outputs import Batch
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.registry import Entry, Registry
from echomesh.spark.pipelines.retry import retry
from echomesh.spark.pipelines.runner import RunOptions, run
from tests.spark.node import events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

ONCE = RunOptions(once=True, first_wait_s=0.1)  # a busy machine may be too slow for a worker of Spark's
SCHEMA = "id long not null, amount double"


def orders(amounts: Iterable[float], first: int = 0) -> list[Event]:
    return [
        Event(type="order", source="/shop", id=f"o-{i}", data={"id": i, "amount": amount})
        for i, amount in enumerate(amounts, first)
    ]


def append(data: Path, topic_name: str, events: Iterable[Event]) -> None:
    with TopicLog(data) as log:
        log.append_many(topic_name, list(events))


@pipeline(inputs={"orders": "orders/**"}, output=topic("alerts"))
def big(orders: DataFrame) -> DataFrame:
    return parse_json(orders, SCHEMA).good.where("amount > 1000")


@pipeline(inputs={"orders": "orders/**"}, output={"good": topic("good"), "bad": dead_letters()}, trigger="100 ms")
def split(orders: DataFrame) -> dict[str, DataFrame]:
    parsed = parse_json(orders, SCHEMA)
    return {"good": parsed.good, "bad": parsed.bad}


def test_rows_become_events_with_their_columns_as_json() -> None:
    outputs = testing.run(big, {"orders": orders([5, 2000, 3000])})
    assert list(outputs.topics) == ["alerts"]
    first = outputs.events[0]
    assert (first.type, first.source, first.datacontenttype) == ("big", "/pipelines/big", "application/json")
    assert [event.data["amount"] for event in outputs.events] == [2000.0, 3000.0]
    assert {key: first.data[key] for key in ("topic", "offset", "event_id", "id")} == {
        "topic": "orders", "offset": 1, "event_id": "o-1", "id": 1,
    }  # fmt: skip


def test_events_pass_through_as_they_are_and_may_name_their_topics() -> None:
    @pipeline(inputs={"orders": "orders/**"}, output=topic(source="/copies"))
    def copies(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("* except (topic)", "concat('copy/', topic) as topic")

    outputs = testing.run(copies, {"orders/eu": orders([1]), "orders/us": orders([2, 3])})
    assert {name: [event.data["amount"] for event in events] for name, events in outputs.topics.items()} == {
        "copy/orders/eu": [1], "copy/orders/us": [2, 3],
    }  # fmt: skip
    assert {(event.source, event.type) for event in outputs.events} == {("/copies", "order")}


def test_inputs_of_a_test_are_those_of_the_pipeline() -> None:
    with pytest.raises(UsageError, match=r"'order' is no input of big, nor a topic of one: .* orders \(orders/\*\*\)"):
        testing.run(big, {"order": []})


def test_several_outputs_and_dead_letters_that_are_tried_again(data: Path) -> None:
    append(
        data,
        "orders/eu",
        [*orders([1, 2]), Event(type="order", source="/shop", id="bad", data=b"{", extensions={"x": "y"})],
    )
    place = Place(data=str(data))
    run(split, place, ONCE)
    assert [event.data["id"] for event in events_of(data, "good")] == [0, 1]
    (dead,) = events_of(data, "dead/orders/eu")
    assert (dead.id, dead.data, dict(dead.extensions)) == (
        "bad", b"{", {"x": "y", "deadreason": "the data is no JSON", "deadtopic": "orders/eu", "deadoffset": "2"},
    )  # fmt: skip

    assert run(retry(), place, ONCE).queries[0].rows == 1
    again = events_of(data, "orders/eu")[3]
    assert (again.id, again.data, dict(again.extensions)) == (
        "bad-retry1", b"{", {"x": "y", "retryof": "bad", "retries": "1"},
    )  # fmt: skip
    assert run(retry(), place, ONCE).queries[0].rows == 0, "each is tried again once"
    run(split, place, ONCE)
    assert len(events_of(data, "good")) == 2, "what was done is not done again"
    run(retry(), place, ONCE)
    assert [event.id for event in events_of(data, "orders/eu")[4:]] == ["bad-retry2"]


def test_a_window_with_a_watermark_counts_what_is_in_time() -> None:
    @pipeline(inputs={"ticks": "ticks"}, output=topic("counts"), watermark="5 seconds")
    def counts(ticks: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        rows = ticks.groupBy(F.window("time", "10 seconds"), "topic").count()
        return rows.select("topic", "count", F.col("window.start").alias("start"))

    from datetime import UTC, datetime, timedelta

    start = datetime(2026, 7, 1, tzinfo=UTC)
    ticks = [
        Event(type="tick", source="/t", id=str(i), time=start + timedelta(seconds=second), data={})
        for i, second in enumerate([1, 2, 11, 12, 13, 40])
    ]
    outputs = testing.run(counts, {"ticks": ticks})
    assert sorted((event.data["start"], event.data["count"]) for event in outputs.events) == [
        ("2026-07-01T00:00:00.000Z", 2), ("2026-07-01T00:00:10.000Z", 3),
    ]  # fmt: skip


class Watch:
    """Sees what a run tells, and stops it when that is enough."""

    def __init__(self, enough: Any) -> None:
        self.stop = threading.Event()
        self.enough = enough
        self.states: list[str] = []
        self.whys: list[str] = []

    def __call__(self, entry: Entry) -> None:
        if self.states[-1:] != [entry.state]:
            self.states.append(entry.state)
        if entry.why and self.whys[-1:] != [entry.why]:
            self.whys.append(entry.why)
        if self.enough(entry):
            self.stop.set()


def test_a_pipeline_runs_until_it_is_stopped_and_goes_on_from_there(data: Path) -> None:
    append(data, "orders/eu", orders([2000.0] * 10))
    place = Place(data=str(data))
    watch = Watch(lambda entry: entry.queries[0].rows == 10)
    entry = run(big, place, stop=watch.stop, tell=watch)
    assert (entry.state, watch.states[:2], watch.states[-1]) == ("stopped", ["starting", "running"], "stopped")
    append(data, "orders/us", orders([3000.0] * 5, 10))
    entry = run(big, place, ONCE)
    assert (entry.state, entry.queries[0].rows, entry.queries[0].lag) == ("finished", 5, 0)
    assert [event.data["id"] for event in events_of(data, "alerts")] == list(range(15))
    kept = Registry(place.homes).entry("big")
    assert (kept.state, kept.queries[0].rows, kept.queries[0].target) == ("finished", 5, "topic alerts")


def test_a_second_instance_is_refused(data: Path) -> None:
    append(data, "orders/eu", orders([1]))
    place = Place(data=str(data))
    refused: list[BaseException] = []

    def second(entry: Entry) -> bool:
        try:
            run(big, place, ONCE)
        except PipelineBusy as error:
            refused.append(error)
        return True

    watch = Watch(second)
    run(big, place, stop=watch.stop, tell=watch)
    assert "big runs already: process" in str(refused[0])


def test_a_run_from_a_time_wants_a_new_checkpoint(data: Path) -> None:
    append(data, "orders/eu", orders([2000.0] * 3))
    place = Place(data=str(data))
    assert run(big, place, RunOptions(once=True, start="2200-01-01T00:00:00Z", first_wait_s=0.1)).queries[0].rows == 0
    with pytest.raises(UsageError, match=r"has a checkpoint in .* with --new-checkpoint it begins at 2020"):
        run(big, place, RunOptions(once=True, start="2020-01-01T00:00:00Z"))
    assert events_of(data, "alerts") == []
    run(big, place, RunOptions(once=True, start="2020-01-01T00:00:00Z", new_checkpoint=True))
    assert len(events_of(data, "alerts")) == 3
    assert len(list((place.directory("big") / "old").iterdir())) == 1


@pytest.fixture
def flaky(data: Path) -> tuple[Pipeline, list[Batch]]:
    append(data, "orders/eu", orders([1.0] * 4))
    seen: list[Batch] = []

    def write(rows: DataFrame, batch: Batch) -> None:
        seen.append(batch)
        if len(seen) <= 2:
            raise ConnectionError("nobody there")
        assert rows.count() == 4

    @pipeline(inputs={"orders": "orders/**"}, output=batches(write, "a list"))
    def listed(orders: DataFrame) -> DataFrame:
        return orders

    return listed, seen


def test_a_failed_query_starts_again_from_its_checkpoint_and_says_why(data: Path, flaky: Any) -> None:
    listed, seen = flaky
    watch = Watch(lambda entry: False)
    entry = run(listed, Place(data=str(data)), ONCE, tell=watch)
    assert (entry.state, entry.queries[0].rows) == ("finished", 4)
    assert entry.queries[0].restarts >= 2
    assert "waiting" in watch.states
    (why,) = {why for why in watch.whys if "ConnectionError" in why}
    assert why.endswith("ConnectionError: nobody there")
    assert "test_run.py:" in why
    assert {(batch.writer, batch.epoch) for batch in seen} == {(seen[0].writer, 0)}, "the same batch, three times"


def test_a_query_that_fails_too_often_ends_the_pipeline_with_its_reason(data: Path, flaky: Any) -> None:
    place = Place(data=str(data))
    with pytest.raises(PipelineFailed, match=r"pipeline listed failed: ") as caught:
        run(flaky[0], place, RunOptions(once=True, restarts=0))
    kept = Registry(place.homes).entry("listed")
    assert (kept.state, kept.why) == ("failed", caught.value.reason)


def test_a_failure_that_lasts_is_not_tried_again(data: Path) -> None:
    append(data, "orders/eu", orders([2000.0]))
    place = Place(data=str(data))
    run(big, place, ONCE)
    append(data, "orders/eu", orders([2000.0], 1))
    offsets = place.directory("big") / "checkpoint" / "out" / "offsets" / "0"
    head, meta, body = offsets.read_text().splitlines()
    other = json.loads(body) | {"log": "0" * 32}
    offsets.write_text("\n".join([head, meta, json.dumps(other)]))
    with pytest.raises(PipelineFailed, match=r"the checkpoint is of the log 0000.* it was made anew"):
        run(big, place, RunOptions(once=True, restarts=5))


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("    orders.count\n", 3, "big returned None, not a DataFrame .is a return missing"),
        ("    return 7\n", 3, "big returned a int, not a DataFrame"),
        ("    return {'a': orders}\n", 3, "big returned a, and its outputs are out"),
        ("    x = orders\n    return x.where('amount > 1')\n", 6, "in big: A column.*`amount` cannot be resolved"),
        ("    return orders.selekt('data')\n", 5, "in big: Attribute `selekt` is not supported"),
        ("    return orders.sparkSession.range(3)\n", 3, "that is no stream"),
        ("    return orders.selectExpr('data', 'offset as key')\n", 3, "no column 'key': a write may have topic"),
        ("    return parse_json(orders, 'id lonk').good\n", 5, "in big: 'id lonk' is no schema"),
        ("    return orders.groupBy('topic').count()\n", 3, "in big: Invalid streaming output mode: append"),
    ],
    ids=range(9),
)
def test_a_mistake_in_the_function_is_told_with_its_line(tmp_path: Path, body: str, line: int, reason: str) -> None:
    from echomesh.spark.pipelines.load import choose

    file = tmp_path / "flow.py"
    head = "from echomesh.spark import parse_json, pipeline, topic\n\n"
    file.write_text(head + "@pipeline(inputs={'orders': 'orders'}, output=topic('alerts'))\ndef big(orders):\n" + body)
    with pytest.raises(BadPipeline, match=f"flow.py:{line}: .*{reason}"):
        run(choose(file), Place(data=str(_log(tmp_path))), ONCE)


def _log(place: Path) -> Path:
    append(place / "data", "orders", [])
    return place / "data"


def test_options_and_columns_of_the_source_are_checked(data: Path) -> None:
    append(data, "orders", orders([1, 2, 3]))

    def with_these(**given: Any) -> Pipeline:
        return pipeline(inputs={"orders": "orders"}, output=topic("copies"), name="copy", **given)(
            lambda orders: orders
        )

    place = Place(data=str(data))
    with pytest.raises(BadPipeline, match="option 'maxrows' is unknown"):
        run(with_these(options={"maxRows": 1}), place, ONCE)
    with pytest.raises(BadPipeline, match="no column 'ids'"):
        run(with_these(columns=["ids"]), place, ONCE)
    with pytest.raises(BadPipeline, match="watermark: there is no column 'time', but data"):
        run(with_these(columns=["data"], watermark="1 second"), place, ONCE)
    chosen = with_these(columns=["data", "id"], options={"maxOffsetsPerTrigger": 2})
    assert run(chosen, place, ONCE).queries[0].batch == 1
    assert [event.id for event in events_of(data, "copies")] == ["o-0", "o-1", "o-2"]


def test_a_log_that_a_writer_holds_wants_its_server(data: Path, spark: SparkSession) -> None:
    with TopicLog(data) as log:
        log.append_many("orders", orders([1]))
        with pytest.raises(UsageError, match=r"writes to the log in .*: give its server too"):
            run(big, Place(data=str(data)), ONCE)


def test_rows_go_to_a_table_each_once_and_new_fields_become_columns(data: Path, spark: SparkSession) -> None:
    append(data, "orders/eu", orders([1, 2]))
    place = Place(data=str(data))

    def typed(schema: str) -> Pipeline:
        rows = pipeline(
            inputs={"orders": "orders/**"}, output=table("orders"), name="typed", columns=["timestamp", "data"]
        )
        return rows(lambda orders: parse_json(orders, schema).good)

    def rows() -> list[tuple[Any, ...]]:
        found = place.open_table(table("orders")).read(spark)
        return sorted(
            tuple(row) for row in found.select([c for c in found.columns if c not in ("timestamp", "date")]).collect()
        )

    run(typed("id long"), place, ONCE)
    run(typed("id long"), place, ONCE)
    assert rows() == [(0,), (1,)]
    append(data, "orders/eu", orders([3], 2))
    run(typed("id long, amount double"), place, ONCE)
    assert sorted(rows(), key=str) == [(0, None), (1, None), (2, 3.0)]
    append(data, "orders/eu", orders([4], 3))
    with pytest.raises(PipelineFailed, match=r"column 'id' is bigint in the table .*, and string in the rows"):
        run(typed("id string, amount double"), place, RunOptions(once=True, restarts=5))
    assert len(rows()) == 3


def test_the_rows_of_a_table_are_given_to_a_test() -> None:
    @pipeline(inputs={"orders": "orders/**"}, output=table("orders", format="parquet"))
    def kept(orders: DataFrame) -> DataFrame:
        return parse_json(orders, SCHEMA).good

    outputs = testing.run(kept, {"orders": orders([1, 2])})
    assert (sorted(row.amount for row in outputs.rows), outputs.events) == ([1.0, 2.0], [])
