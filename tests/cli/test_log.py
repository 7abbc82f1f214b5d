"""`echomesh log ls`, `stats` and what all its commands have in common."""

from __future__ import annotations

import os
import time

import pytest

from echomesh.log import LogOptions, TopicLog
from tests.cli.log_support import Log, event, filled


@pytest.mark.parametrize("command", ["ls", "cat", "tail", "append", "verify", "stats", "export", "compact"])
def test_help_shows_examples(log: Log, command: str) -> None:
    result = log.run(command, "--help")
    assert result.returncode == 0
    assert "Examples" in result.stdout
    assert f"echomesh log {command}" in result.stdout


@pytest.mark.parametrize("command", [["ls"], ["cat", "t"], ["tail", "t"], ["verify"], ["stats"], ["compact"]])
def test_a_directory_without_a_log_is_one_sentence_and_stays_as_it_was(log: Log, command: list[str]) -> None:
    result = log.run(*command)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"error: there is no log in {log.data}: check --data, or append something\n"
    assert not log.data.exists()


def test_the_directory_must_be_named(log: Log) -> None:
    result = log.run("ls", ECHOMESH_DATA="")
    assert result.returncode == 2
    assert "--data" in result.stderr


@pytest.mark.parametrize("command", [["cat", "nope"], ["tail", "nope"], ["verify", "nope"], ["ls", "nope"]])
def test_an_unknown_topic_is_told_with_those_there_are(log: Log, command: list[str]) -> None:
    filled(log.data, {"orders": 1, "alarms": 1})
    result = log.run(*command)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: no topic 'nope' in environment TST: there is alarms, orders\n"


def test_a_topic_of_another_environment_is_hinted_at(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append("orders", event(0), environment="PRD")
    assert "it is in PRD (--environment)" in log.run("cat", "orders").stderr
    assert len(log.lines("cat", "orders", "--environment", "PRD")) == 1


def test_what_the_file_system_refuses_is_one_sentence(log: Log) -> None:
    filled(log.data, {"orders": 3})
    (segment,) = (log.data / "topics" / "00000000").glob("*.seg")
    segment.unlink()
    segment.mkdir()
    result = log.run("cat", "orders")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_ls_shows_each_topic_with_its_figures(log: Log) -> None:
    filled(log.data, {"orders": 3, "sensors/a": 2000})
    found = log.json("ls", "--json")
    assert (found["data"], found["writer"], len(found["log_id"])) == (str(log.data), None, 32)
    orders, sensors = found["topics"]
    assert {
        key: orders[key] for key in ("environment", "topic", "level", "earliest", "next", "events", "segments")
    } == {
        "environment": "TST",
        "topic": "orders",
        "level": "disk",
        "earliest": 0,
        "next": 3,
        "events": 3,
        "segments": 1,
    }
    assert sensors["next"] == 2000
    assert sensors["bytes"] == next((log.data / "topics" / "00000001").glob("*.seg")).stat().st_size
    assert sensors["disk_bytes"] >= sensors["bytes"]
    assert sensors["last"].endswith("Z")
    text = log.run("ls").stdout.splitlines()
    assert text[0].split() == ["topic", "level", "earliest", "next", "events", "size", "segments", "last"]
    assert text[2].split()[:5] == ["sensors/a", "disk", "0", "2,000", "2,000"]
    assert len(log.run("ls", "sensors/*").stdout.splitlines()) == 2


def test_ls_fits_a_narrow_terminal(log: Log) -> None:
    filled(log.data, {"sensors/hall-12/line-7/temperature": 3})
    lines = log.run("ls", COLUMNS="80").stdout.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80


def test_ls_tells_environments_apart_when_there_are_several(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append("orders", event(0))
        writer.append("orders", event(0), environment="PRD")
    assert [line.split()[:2] for line in log.run("ls").stdout.splitlines()[1:]] == [
        ["PRD", "orders"],
        ["TST", "orders"],
    ]
    assert len(log.json("ls", "--json", "-e", "PRD")["topics"]) == 1


def test_an_empty_log_says_so(log: Log) -> None:
    TopicLog(log.data).close()
    assert log.run("ls").stdout == f"No topics in {log.data}.\n"
    assert log.json("ls", "--json")["topics"] == []


def test_ls_and_stats_read_while_a_writer_runs(log: Log) -> None:
    with TopicLog(log.data, LogOptions(segment_bytes=1 << 16)) as writer:
        writer.append_many("orders", [event(i, 200) for i in range(1000)])
        listed = log.json("ls", "--json")
        stats = log.json("stats", "orders", "--json")
        text = log.run("stats").stdout
    assert (listed["writer"], listed["topics"][0]["next"]) == (os.getpid(), 1000)
    segments = stats["topics"][0]["segment_list"]
    assert len(segments) == listed["topics"][0]["segments"] > 3
    assert [segment["first"] for segment in segments[1:]] == [segment["end"] for segment in segments[:-1]]
    assert [segment["kind"] for segment in segments] == ["sealed"] * (len(segments) - 1) + ["open"]
    # The open segment is preallocated; only what is written counts.
    assert sum(segment["bytes"] for segment in segments) == listed["topics"][0]["bytes"]
    assert f"written by process {os.getpid()}" in text


def test_stats_count_what_came_in_the_window(log: Log) -> None:
    now = time.time_ns()
    clock = [now - int(3600e9)]
    with TopicLog(log.data, LogOptions(clock=lambda: clock[0])) as writer:
        writer.append_many("orders", [event(i) for i in range(100)])
        clock[0] = now
        writer.append_many("orders", [event(i) for i in range(100, 130)])
    found = log.json("stats", "--json", "--window", "60")
    assert (found["events"], found["per_second"]) == (130, 0.5)
    assert "segment_list" not in found["topics"][0]
    assert log.json("stats", "--json", "--window", "36000")["per_second"] == pytest.approx(130 / 36000, abs=1e-3)
    assert "130 events in 1 topic" in log.run("stats").stdout
    assert "0.5/s in the last 60 s" in log.run("stats").stdout


def test_stats_show_the_state_of_each_index(log: Log) -> None:
    filled(log.data, {"orders": 2000}, size=200)
    directory = log.data / "topics" / "00000000"
    assert log.json("stats", "orders", "--json")["topics"][0]["segment_list"][0]["index"] == "whole"
    (index,) = directory.glob("*.idx")
    whole = index.read_bytes()
    index.write_bytes(whole[:30] + b"\xff" + whole[31:])
    assert "damaged, 1 entries" in log.run("stats", "orders").stdout
    index.write_bytes(whole[:48])
    assert "behind, 2 entries" in log.run("stats", "orders").stdout
    index.unlink()
    assert "missing, 0 entries" in log.run("stats", "orders").stdout
