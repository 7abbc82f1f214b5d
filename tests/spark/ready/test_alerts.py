"""`alerts`: every alert fires once and resolves once, when plain Python says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.errors import UsageError
from echomesh.spark.pipelines.ready import alerts
from echomesh.spark.pipelines.ready.alert_rules import Rule, rules
from echomesh.spark.pipelines.ready.alert_states import Change, Watch
from tests.spark.ready import expected
from tests.spark.ready.city import City, events_in
from tests.spark.ready.running import ALERTS, finish, in_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND_US = 1_000_000


def check(city: City) -> None:
    """Compares what was published with what plain Python finds."""
    told = events_in(city.data, "alerts/")
    wanted = {
        "alerts/hot": expected.above(city.seen, 30.0),
        "alerts/odd": expected.unusual(city.seen, 2.0, 30 * SECOND_US, 5),
        "alerts/gone": expected.silent(city.seen, 20 * SECOND_US),
    }
    assert {name: len(found) for name, found in wanted.items()}.keys() == told.keys()
    for name, found in wanted.items():
        assert expected.alerts(told[name]) == found


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_alerts_fire_and_resolve_once_each(spark: SparkSession, city: City) -> None:
    finish(in_batches(alerts.make(alerts.Options(rule=list(ALERTS)))), city.data)
    check(city)


def run(rule: Rule, events: list[tuple[float, float | None]], until: float = 0.0) -> Iterator[Change]:
    """The changes that these events bring, given with their seconds."""
    watch = Watch()
    for second, value in events:
        yield from watch.event(rule, round(second * SECOND_US), value)
    if until:
        yield from watch.advance(rule, round(until * SECOND_US))


def states(changes: Iterator[Change]) -> list[tuple[str, float, float]]:
    """State, since and time, in seconds."""
    return [(change.state, change.since_us / SECOND_US, change.at_us / SECOND_US) for change in changes]


def test_an_alert_fires_at_the_first_value_beyond_and_resolves_at_the_first_that_is_not() -> None:
    rule = Rule("low", "threshold", "t", field="$.x", below=5.0)
    events = [(1.0, 6.0), (2.0, 4.0), (3.0, 3.0), (4.0, None), (5.0, 5.0), (6.0, 7.0), (7.0, 1.0)]
    assert states(run(rule, events)) == [("firing", 2, 2), ("resolved", 2, 5), ("firing", 7, 7)]


def test_a_silence_is_told_whether_or_not_the_key_comes_back() -> None:
    rule = Rule("gone", "silence", "t", after_ms=10_000)
    told = [("firing", 15, 15), ("resolved", 15, 40), ("firing", 50, 50)]
    assert states(run(rule, [(1.0, None), (5.0, None), (40.0, None)], until=60.0)) == told


def test_a_key_that_is_forgotten_resolves_and_begins_anew() -> None:
    rule = Rule("hot", "threshold", "t", field="$.x", above=1.0, forget_ms=60_000)
    watch = Watch()
    changes = [*watch.event(rule, 0, 2.0), *watch.advance(rule, 61 * SECOND_US)]
    assert [(change.state, change.reason) for change in changes] == [("firing", "above 1"), ("resolved", "forgotten")]
    assert watch.deadline_us(rule) is None
    assert watch == Watch()


def test_a_key_that_never_changed_is_unusual_when_it_does() -> None:
    rule = Rule("odd", "zscore", "t", field="$.x", least=3, window_ms=10_000)
    steady: list[tuple[float, float | None]] = [(float(second), 4.0) for second in range(5)]
    assert [change.state for change in run(rule, [*steady, (5.0, 4.1), (6.0, 4.0)])] == ["firing", "resolved"]


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[hot]\nkind = "threshold"\ntopics = "a/**, b"\nfield = "$.x"\nabove = 3\nkey = "topic"\n')
    expected_rule = Rule("hot", "threshold", "a/**,b", "topic", "$.x", above=3.0, after_ms=86_400_000)
    assert rules(str(file), ()) == [expected_rule]
    assert alerts.make(alerts.Options(rules=str(file))).inputs == {"events": "a/**,b"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("hot", "write NAME KIND", id="too-short"),
        pytest.param("hot warm topics=t", "there are threshold, zscore, silence", id="kind"),
        pytest.param("hot threshold topics=t field=$.x above=3 over=4", "over is unknown", id="unknown"),
        pytest.param("hot threshold topics=t field=$.x", "either above or below", id="no-bound"),
        pytest.param("hot threshold topics=t field=x above=3", "no place in a payload", id="field"),
        pytest.param("hot threshold topics=t field=$.x above=high", "not a number", id="number"),
        pytest.param("hot threshold field=$.x above=1", "topics are missing", id="no-topics"),
        pytest.param("gone silence topics=a*", "mixes", id="filter"),
        pytest.param("gone silence topics=t", "after is missing", id="no-after"),
        pytest.param("gone silence topics=t after=soon", "no time span", id="span"),
        pytest.param("gone silence topics=t after='2 days'", "forget has to be longer", id="forget"),
        pytest.param("a/b silence topics=t after='2 s'", "a name has letters", id="name"),
    ],
)
def test_a_rule_with_a_mistake_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        rules(None, [text])


def test_two_rules_of_one_name_and_none_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two rules have the name hot"):
        rules(None, ["hot silence topics=a after='1 s'", "hot silence topics=b after='1 s'"])
    with pytest.raises(UsageError, match="there is no rule"):
        rules(None, ())
    for text, says in (("[hot", "is no TOML"), ("a = 1", "outside of a rule"), ("[hot]\nkind=3", "rule hot: kind")):
        (tmp_path / "rules.toml").write_text(text)
        with pytest.raises(UsageError, match=says):
            rules(str(tmp_path / "rules.toml"), ())
    with pytest.raises(UsageError, match="can't be read"):
        rules(str(tmp_path / "none.toml"), ())
