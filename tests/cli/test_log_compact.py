"""`echomesh log compact`."""

from __future__ import annotations

import json

import pyarrow.parquet as pq

from echomesh.log import LogOptions, TopicLog
from tests.cli.log_support import Log, event, filled


def test_sealed_segments_become_parquet_and_all_commands_read_on(log: Log) -> None:
    filled(log.data, {"orders": 2000, "small": 3}, size=200, segment_bytes=1 << 17)
    before = log.run("cat", "orders").stdout
    directory = log.data / "topics" / "00000000"
    segments = len(list(directory.glob("*.seg")))
    result = log.run("compact", "--older-than", "0s")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{segments - 1} segments converted: ")
    files = sorted(directory.glob("*.parquet"))
    assert (len(files), len(list(directory.glob("*.seg")))) == (segments - 1, 1)
    assert pq.read_table(files[0]).column("offset")[0].as_py() == 0
    assert log.run("cat", "orders").stdout == before
    assert log.json("verify", "--json")["events"] == 2003
    listed = log.json("stats", "orders", "--json")["topics"][0]
    assert [each["kind"] for each in listed["segment_list"]] == ["parquet"] * (segments - 1) + ["open"]
    assert listed["segments"] == segments
    assert "parquet" in log.run("stats", "orders").stdout
    assert len(log.lines("cat", "orders", "--from", "3", "--limit", "5")) == 5


def test_young_segments_and_those_that_can_not_be_rebuilt_stay(log: Log) -> None:
    with TopicLog(log.data, LogOptions(segment_bytes=1 << 14)) as writer:
        writer.append_many("orders", [b"\xc1" * 100, *[event(i, 200) for i in range(300)]])
    assert log.run("compact").stdout.startswith("Nothing to convert")
    found = log.json("compact", "--older-than", "0s", "--json")
    stayed = [each for each in found["topics"][0]["segments"] if each["reason"]]
    assert [each["reason"] for each in stayed] == ["offset 0 is no event"]
    assert found["segments"] == len(found["topics"][0]["segments"]) - 1 > 2
    assert 0 < found["after_bytes"] < found["before_bytes"]


def test_compact_runs_beside_the_writer(log: Log) -> None:
    with TopicLog(log.data, LogOptions(segment_bytes=1 << 14)) as writer:
        writer.append_many("orders", [event(i, 200) for i in range(500)])
        writer.core.keeper.checkpoint()
        assert log.json("compact", "--older-than", "0s", "--json")["segments"] > 2
        writer.append("orders", event(500))
        assert [json.loads(line)["offset"] for line in log.run("cat", "orders").stdout.splitlines()] == list(range(501))


def test_a_time_span_that_is_none_is_refused(log: Log) -> None:
    filled(log.data, {"orders": 1})
    result = log.run("compact", "--older-than", "soon")
    assert result.returncode == 2
    assert "'soon' is no time span" in result.stderr
