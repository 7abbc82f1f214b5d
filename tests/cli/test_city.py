"""The parts of the demonstration's city."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from echomesh.cli.city.chart import chart
from echomesh.cli.city.events import HOT, QUIET, City, write_settings
from echomesh.cli.city.ledger import count, stored_in
from echomesh.cli.city.traffic import Account
from echomesh.log import TopicLog
from echomesh.topics import parse_topic

pa = pytest.importorskip("pyarrow", reason="the ledger reads tables with pyarrow")
deltalake = pytest.importorskip("deltalake", reason="the ledger reads tables with deltalake")

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_the_same_seed_makes_the_same_city() -> None:
    first, second = City(3).some(500, NOW, 0.5), City(3).some(500, NOW, 0.5)
    assert first == second
    assert first != City(4).some(500, NOW, 0.5)


def test_a_city_has_events_of_every_kind() -> None:
    made = City().some(5000, NOW, 0.5)
    kinds = Counter(each.kind for each in made)
    assert set(kinds) == {"good", "late", "invalid", "duplicate"}
    assert kinds["good"] > 0.85 * len(made)
    for each in made:
        assert parse_topic(each.topic) == each.topic
        assert each.event.time is not None
        assert (each.event.time < NOW) == (each.kind == "late") or each.kind == "duplicate"
    names = [(each.event.source, each.event.id) for each in made if each.kind != "duplicate"]
    assert len(set(names)) == len(names), "only duplicates come twice"
    assert {(each.event.source, each.event.id) for each in made} == set(names), "and they were there before"


def test_a_thermometer_is_hot_at_times_and_another_device_silent() -> None:
    def hot(part: float) -> bool:
        made = City().some(5000, NOW, part)
        return any(
            isinstance(each.event.data, dict) and each.event.data.get("celsius", 0) > 35
            for each in made
            if each.event.subject == HOT and each.kind == "good"
        )

    assert [hot(part) for part in (0.0, 0.2, 0.5, 0.75, 0.95)] == [False, True, False, True, False]
    silent = City().some(5000, NOW, 0.3)
    assert not any(each.event.subject == QUIET and each.topic.endswith("air") for each in silent)


def test_the_settings_are_what_the_pipelines_read(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pipelines need Spark")
    from echomesh.cli.city.driver import NAMES, pipelines

    schemas, rules = write_settings(tmp_path)
    assert tuple(each.name for each in pipelines(schemas, rules)) == NAMES


def test_a_chart_is_a_picture_with_what_happened() -> None:
    text = chart({0: 10, 1: 30}, {1: 40}, 20, [(5.0, "kill -9 of <Spark>")], "A minute & more")
    root = ET.fromstring(text)
    said = "".join(root.itertext())
    assert root.tag.endswith("svg")
    assert "kill -9 of <Spark>" in said
    assert "A minute & more" in said
    assert len(root.findall(".//{*}polygon")) == 1


def table(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Appends (source, id, topic) to a Delta table."""
    columns = {
        "source": [row[0] for row in rows],
        "id": [row[1] for row in rows],
        "topic": [row[2] for row in rows],
        "timestamp": pa.array([NOW] * len(rows), pa.timestamp("us", "UTC")),
    }
    deltalake.write_deltalake(path, pa.table(columns), mode="append")


def account(number: int) -> tuple[Account, list[tuple[str, str, str]]]:
    """So many events, the first of which was published twice."""
    made = [each for each in City().some(3 * number, NOW - timedelta(seconds=1), 0.5) if each.kind == "good"][:number]
    known = Account(acknowledged=number + 1)
    known.events = {(each.event.source, each.event.id): each for each in made}
    return known, [(*key, each.topic) for key, each in known.events.items()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory without events."""
    TopicLog(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_ledger_adds_up(tmp_path: Path, data: Path) -> None:
    known, rows = account(50)
    table(tmp_path / "archive", rows[:30])
    table(tmp_path / "archive", rows[30:45])
    table(tmp_path / "archive-quarantine", rows[45:])
    assert stored_in(tmp_path) == 50
    done = count(known, data, tmp_path, 5.0)
    assert (done.published, done.stored, done.quarantined, done.duplicates) == (51, 45, 5, 1)
    assert (done.missing, done.twice, done.strange, done.by_pyarrow) == (0, 0, 0, 50)
    assert done.adds_up


def test_a_ledger_finds_what_is_missing_twice_or_strange(tmp_path: Path, data: Path) -> None:
    known, rows = account(50)
    table(tmp_path / "archive", rows[:48])
    table(tmp_path / "archive-quarantine", [rows[3], ("/nobody", "1", "city/x")])
    done = count(known, data, tmp_path, 5.0)
    assert (done.missing, done.twice, done.strange) == (2, 1, 1)
    assert not count(Account(acknowledged=2), data, tmp_path, 5.0).adds_up
