"""`echomesh log cat` and `tail`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from echomesh.cli.common import stoppable
from echomesh.cli.log_common import Range
from echomesh.cli.log_read import Followed
from echomesh.events import Event
from echomesh.log import LogOptions, LogReader, TopicLog
from tests.cli.log_support import PATIENCE_S, Log, event, filled


def offsets(lines: list[Any]) -> list[int]:
    return [line["offset"] for line in lines]


def damage(data: Path, topic: int = 0) -> Path:
    """Flips a bit in the middle of the topic's first segment."""
    segment = min((data / "topics" / f"{topic:08d}").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    return segment


def test_cat_prints_the_official_format_with_topic_offset_and_time(log: Log) -> None:
    before = time.time_ns()
    made = Event(type="order.created", source="/shop", data={"id": 7}, subject="7", extensions={"tenant": "a"})
    with TopicLog(log.data) as writer:
        writer.append("orders", made)
        writer.append("orders", Event(type="photo", source="/shop", data=b"\xff\x00"))
    first, second = log.lines("cat", "orders")
    assert set(first) == {"topic", "offset", "timestamp", "event"}
    assert (first["topic"], first["offset"], second["offset"]) == ("orders", 0, 1)
    assert first["event"] == json.loads(made.to_json())
    assert first["timestamp"][:19] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before // 10**9))
    assert second["event"]["data_base64"] == "/wA="
    bare = log.run("cat", "orders", "--bare", "--limit", "1").stdout
    assert Event.from_json(bare.strip()) == made


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Range(), (0, 100)),
        (Range(first=90), (90, 100)),
        (Range(first=-3), (97, 100)),
        (Range(first=-1000), (0, 100)),
        (Range(to=5), (0, 5)),
        (Range(to=1000), (0, 100)),
        (Range(to=-98), (0, 2)),
        (Range(first=10, to=12), (10, 12)),
        (Range(first=12, to=10), (12, 12)),
        (Range(first=100), (100, 100)),
        (Range(limit=0), (0, 0)),
        (Range(first=50, limit=2), (50, 52)),
        (Range(first=98, limit=7), (98, 100)),
    ],
)
def test_a_range_is_what_is_there_of_what_is_wanted(log: Log, wanted: Range, expected: tuple[int, int]) -> None:
    filled(log.data, {"orders": 100})
    with LogReader(log.data) as reader:
        assert wanted.of(reader.topic("orders")) == expected


def test_cat_takes_ranges_of_offsets(log: Log) -> None:
    filled(log.data, {"orders": 100})
    assert offsets(log.lines("cat", "orders", "--from", "90", "--to", "95", "--limit", "3")) == [90, 91, 92]
    assert offsets(log.lines("cat", "orders", "--from", "-2")) == [98, 99]


def test_cat_takes_ranges_of_time(log: Log) -> None:
    now = time.time_ns()
    clock = [0]
    with TopicLog(log.data, LogOptions(clock=lambda: clock[0])) as writer:
        for i in range(10):
            clock[0] = now - (10 - i) * 60 * 10**9
            writer.append("orders", event(i))
    assert offsets(log.lines("cat", "orders", "--since", "150s")) == [8, 9]
    assert offsets(log.lines("cat", "orders", "--since", "5.5m", "--until", "3.5m")) == [5, 6]
    times = [line["timestamp"] for line in log.lines("cat", "orders")]
    assert offsets(log.lines("cat", "orders", "--since", times[3], "--until", times[5])) == [3, 4]
    assert offsets(log.lines("cat", "orders", "--until", "2001-01-01")) == []
    assert offsets(log.lines("cat", "orders", "--since", "2100-01-01T00:00:00+02:00")) == []
    bad = log.run("cat", "orders", "--since", "yesterday")
    assert bad.returncode == 2
    assert "'yesterday' is no time" in bad.stderr


def test_an_offset_beyond_the_end_is_an_error(log: Log) -> None:
    filled(log.data, {"orders": 3})
    result = log.run("cat", "orders", "--from", "4")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: topic 'orders' ends at offset 3, before 4")


def test_bytes_that_are_no_event_are_shown_as_they_are(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append("orders", b"\xc1 anything")
    (line,) = log.lines("cat", "orders")
    assert line["event"]["bytes_base64"] == "wSBhbnl0aGluZw=="
    assert "not an event" in line["event"]["problem"]


def test_cat_stops_at_corrupt_events_unless_told_to_skip_them(log: Log) -> None:
    filled(log.data, {"orders": 100})
    damage(log.data)
    result = log.run("cat", "orders")
    assert result.returncode == 1
    good = offsets([json.loads(line) for line in result.stdout.splitlines()])
    bad = len(good)
    assert good == list(range(bad))
    assert 0 < bad < 99
    assert f"offsets {bad} to {bad} are corrupt" in result.stderr
    skipped = log.run("cat", "orders", "--skip")
    assert skipped.returncode == 0
    found = offsets([json.loads(line) for line in skipped.stdout.splitlines()])
    assert found == [i for i in range(100) if i != bad]
    assert skipped.stderr.startswith(f"left out: topic 'orders': offsets {bad} to {bad} are corrupt")


def test_offsets_that_retention_removed_are_named(log: Log) -> None:
    with TopicLog(log.data, LogOptions(segment_bytes=1 << 14, retention_bytes=1 << 15)) as writer:
        writer.append_many("orders", [event(i, 200) for i in range(500)])
        writer.core.keeper.care()
    earliest = log.json("ls", "--json")["topics"][0]["earliest"]
    assert earliest > 0
    assert offsets(log.lines("cat", "orders")) == list(range(earliest, 500))
    result = log.run("cat", "orders", "--from", "0")
    assert result.returncode == 1
    assert f"offsets 0 to {earliest - 1} were removed by retention" in result.stderr
    assert len(log.run("cat", "orders", "--from", "0", "--skip").stdout.splitlines()) == 500 - earliest


def test_a_pipe_that_closes_early_leaves_no_traceback(log: Log) -> None:
    filled(log.data, {"orders": 20_000})
    for command in (["cat", "orders"], ["tail", "orders", "--last", "20000"]):
        with log.started(*command) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert json.loads(process.stdout.readline())["offset"] == 0
            process.stdout.close()
            assert process.stderr.read() == ""
            process.wait(PATIENCE_S)


def test_tail_begins_with_the_last_and_goes_on_with_what_comes(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append_many("orders", [event(i) for i in range(20)])
        with log.started("tail", "orders", "--last", "2") as process:
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline())["offset"] for _ in range(2)] == [18, 19]
            for i in range(20, 40):
                writer.append("orders", event(i))
                line = json.loads(process.stdout.readline())
                assert (line["offset"], line["event"]["id"]) == (i, str(i))
            process.send_signal(signal.SIGINT)
            rest, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest, complaint) == (0, "", "")


def test_tail_follows_filters_and_topics_that_are_born_later(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append("sensors/a", event(0))
        writer.append("other", event(0))
        with log.started("tail", "sensors/*", "--limit", "4") as process:
            assert process.stdout is not None
            found = [json.loads(process.stdout.readline())]
            writer.append("other", event(1))
            writer.append("sensors/b", event(2))
            writer.append("sensors/b", event(3))
            found += [json.loads(process.stdout.readline()) for _ in range(2)]
            writer.append("sensors/a", event(4))
            found += [json.loads(process.stdout.readline())]
            assert process.wait(PATIENCE_S) == 0
    assert [(line["topic"], line["offset"]) for line in found] == [
        ("sensors/a", 0),
        ("sensors/b", 0),
        ("sensors/b", 1),
        ("sensors/a", 1),
    ]


@pytest.mark.parametrize("topics", [["orders"], ["orders", "**"]])
def test_tail_goes_on_over_writers_that_come_and_go(log: Log, topics: list[str]) -> None:
    filled(log.data, {"orders": 1})
    with log.started("tail", *topics) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        for i in range(1, 4):
            with TopicLog(log.data) as writer:
                writer.append("orders", event(i))
            assert json.loads(process.stdout.readline())["offset"] == i
        with TopicLog(log.data) as writer:
            for i in range(4, 8):
                writer.append("orders", event(i))
                assert json.loads(process.stdout.readline())["offset"] == i
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_tail_misses_no_writer_that_comes_and_goes_right_behind_its_look(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(log.data, {"orders": 1})
    with LogReader(log.data) as reader, stoppable() as stop:
        followed = Followed(reader, ["orders"], "TST", 10, skip=False)
        assert [len(records) for _, records in followed.read(10)] == [1]
        refresh = reader.refresh

        def and_a_writer() -> None:
            refresh()
            monkeypatch.undo()
            with TopicLog(log.data) as writer:
                writer.append("orders", event(1))

        monkeypatch.setattr(reader, "refresh", and_a_writer)
        deadline, found = time.monotonic() + PATIENCE_S, 0
        while not found and time.monotonic() < deadline:
            before = followed.word()
            found = sum(len(records) for _, records in followed.read(10))
            if not found:
                followed.sleep(before, stop)
        assert found == 1


def test_tail_ends_when_nobody_reads_it_any_more(log: Log) -> None:
    filled(log.data, {"orders": 1})
    readable, writable = os.pipe()
    with log.started("tail", "orders", stdout=writable) as process:
        os.close(writable)
        assert os.read(readable, 10)
        os.close(readable)
        process.wait(PATIENCE_S)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_what_cat_prints_can_be_appended_to_another_log(log: Log, shm_dir: Path) -> None:
    filled(log.data, {"orders": 50})
    other = Log(log.environment, shm_dir / "other")
    copied = other.run("append", "orders", "--events", input=log.run("cat", "orders").stdout)
    assert copied.stdout == "orders: 50 events, offsets 0 to 49\n"
    assert [line["event"] for line in other.lines("cat", "orders")] == [
        line["event"] for line in log.lines("cat", "orders")
    ]
