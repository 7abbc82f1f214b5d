"""Alerts of a stream: each rule's values a key, folded by Spark with state, out as rows for topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from echomesh.spark.pipelines.ready.alert_rules import Rule
from echomesh.spark.pipelines.ready.alert_states import Change, Watch
from echomesh.spark.pipelines.ready.common import JSON, SKEW_MS
from echomesh.spark.pipelines.ready.keys import key_of, number_at

Fold: TypeAlias = "Callable[[tuple[str, str, str], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]"

_CHANGES: Final = (
    "rule string, kind string, topic string, key string, state string, reason string, value double, score double, "
    "since_us long, at_us long"
)
_NAMES: Final = [part.split()[0] for part in _CHANGES.split(", ")]
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Watch).decode


def alerts(events: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """A row for each alert that fires or resolves."""
    values = values_of(events.withWatermark("timestamp", f"{SKEW_MS} milliseconds"), rules)
    found = values.groupBy("rule", "topic", "key").applyInPandasWithState(
        folding({rule.name: rule for rule in rules}),
        _CHANGES,
        "watch binary",
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )
    times = {name: F.timestamp_micros(f"{name}_us") for name in ("since", "at")}
    return found.withColumns(times).drop("since_us", "at_us")


def values_of(events: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """A row for each event and rule that it matters to: rule, topic, key, offset, timestamp and value."""
    each = F.explode(F.filter(F.array(*map(_value, rules)), lambda one: one.isNotNull())).alias("each")
    found = events.select("topic", "offset", "timestamp", each)
    return found.select("topic", "offset", "timestamp", "each.*").where("key is not null")


def _value(rule: Rule) -> Column:
    value = F.lit(None).cast("double") if rule.kind == "silence" else number_at(rule.field)
    row = F.struct(F.lit(rule.name).alias("rule"), key_of(rule.key).alias("key"), value.alias("value"))
    wanted = F.concat(F.lit("/"), F.col("topic")).rlike(pattern(rule.topics))
    return F.when(wanted if rule.kind == "silence" else wanted & value.isNotNull(), row)


def pattern(filters: str) -> str:
    """A regular expression of Java's for topics with a / in front, that matches those which the filters do."""
    parts = {"*": "/[^/]+", "**": "(?:/[^/]+)*"}
    each = ("".join(parts.get(part, f"/{re.escape(part)}") for part in one.split("/")) for one in filters.split(","))
    return f"^(?:{'|'.join(each)})$"


def folding(rules: Mapping[str, Rule]) -> Fold:
    """The function that Spark calls for a key with events, or whose time has come."""
    # It travels to the workers whole; what it calls is looked up there.
    return lambda key, frames, state: fold(rules, key, frames, state)


def fold(
    rules: Mapping[str, Rule], key: tuple[str, str, str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The changes that these rows bring, and the time that has passed."""
    rule = rules.get(key[0])
    if rule is None:
        if state.exists:
            state.remove()  # of a rule that is there no more
        return
    watch = _decode(state.get[0]) if state.exists else Watch()
    changes = [change for row in _in_order(frames) for change in watch.event(rule, *row)]
    changes += watch.advance(rule, state.getCurrentWatermarkMs() * 1000)
    _keep(state, watch, rule)
    if changes:
        # Spark puts empty rows behind these, and other types would make pandas warn of it.
        yield pd.DataFrame([_row(rule, key, change) for change in changes], columns=_NAMES, dtype=object)


def _in_order(frames: Iterator[pd.DataFrame]) -> list[tuple[int, float | None]]:
    rows: list[tuple[int, int, float]] = []
    for frame in frames:
        times = frame["timestamp"].astype("int64") // _unit(frame["timestamp"])
        rows += zip(frame["offset"].tolist(), times.tolist(), frame["value"].tolist(), strict=True)
    return [(at_us, None if value is None or value != value else value) for _, at_us, value in sorted(rows)]


def _unit(times: pd.Series[Any]) -> int:
    return 1000 if "ns" in str(times.dtype) else 1


def _keep(state: GroupState, watch: Watch, rule: Rule) -> None:
    deadline_us = watch.deadline_us(rule)
    if deadline_us is None:
        if state.exists:
            state.remove()
        return
    state.update((_encode(watch),))
    # It comes when the watermark is behind it, by a millisecond: only what lies before the watermark is certain.
    state.setTimeoutTimestamp(deadline_us // 1000 + 1)


def _row(rule: Rule, key: tuple[str, str, str], change: Change) -> list[Any]:
    about = [rule.name, rule.kind, key[1], key[2], change.state, change.reason]
    return [*about, change.value, change.score, change.since_us, change.at_us]


def to_events(rows: DataFrame, prefix: str, name: str) -> DataFrame:
    """An event for each row, on the topic of its rule. Its id is of rule, topic, key and times."""
    return rows.select(
        F.concat(F.lit(f"{prefix}/"), F.col("rule")).alias("topic"),
        F.to_json(F.struct("*"), JSON).alias("data"),
        F.lit("application/json").alias("datacontenttype"),
        F.concat(F.lit("alert."), F.col("state")).alias("type"),
        F.lit(f"/pipelines/{name}").alias("source"),
        F.col("key").alias("subject"),
        F.col("at").alias("time"),
        F.sha1(F.concat_ws("\n", "rule", "topic", "key", F.unix_micros("since"), "state")).alias("id"),
    )
