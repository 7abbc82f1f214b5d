"""`alerts`: an event when a value is over a threshold, unusual, or missing, and one when it is well again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.spark.pipelines.define import Pipeline, pipeline
from echomesh.spark.pipelines.outputs import topic
from echomesh.spark.pipelines.ready import option
from echomesh.spark.pipelines.ready.alert_rules import rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS: Final = "alerts"
COLUMNS: Final = ("topic", "offset", "timestamp", "subject", "data")


@dataclass(frozen=True)
class Options:
    """Options of `alerts`."""

    rules: str | None = option(None, "A TOML file with a table for each rule.", metavar="FILE")
    rule: list[str] | None = option(  # noqa: RUF009 - it makes a field, as for the others
        None, "A rule, as in 'hot threshold topics=sensors/** field=$.celsius above=30'.", metavar="RULE"
    )
    every: str = option("1 second", "The time between two batches.", metavar="TIME")
    name: str = option("alerts", "The name of the pipeline, if there are several of its kind.", metavar="NAME")


def make(options: Options) -> Pipeline:
    """The pipeline with these options."""
    chosen = rules(options.rules, options.rule or ())
    filters = dict.fromkeys(each for rule in chosen for each in rule.topics.split(","))

    @pipeline(
        name=options.name,
        inputs={"events": ",".join(filters)},
        output=topic(),
        trigger=options.every,
        columns=COLUMNS,
        packages=["pandas"],
    )
    def alerts(events: DataFrame) -> DataFrame:
        from echomesh.spark.pipelines.ready import alert_rows
        from echomesh.spark.pipelines.ready.common import not_below

        found = alert_rows.alerts(not_below(events, TOPICS), chosen)
        return alert_rows.to_events(found, TOPICS, options.name)

    return alerts
