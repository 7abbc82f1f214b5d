"""`echomesh log append`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from echomesh.log import TopicLog
from tests.cli.log_support import PATIENCE_S, Log


def events(log: Log, topic: str = "orders") -> list[dict[str, object]]:
    return [line["event"] for line in log.lines("cat", topic)]


def test_a_value_becomes_an_event_of_the_type_that_it_looks_like(log: Log) -> None:
    first = log.run("append", "orders", '{"id": 7}', "--type", "order.created", "--source", "/shop", "-x", "tenant=a")
    assert (first.returncode, first.stdout) == (0, "orders: offset 0\n")
    assert first.stderr == f"new log in {log.data}\n"
    second = log.run("append", "/orders", "hello", "--subject", "greeting", "--id", "x1")
    assert (second.returncode, second.stdout, second.stderr) == (0, "orders: offset 1\n", "")
    log.run("append", "orders", "{no json")
    log.run("append", "orders", "<a/>", "--content-type", "application/xml")
    one, two, three, four = events(log)
    assert (one["type"], one["source"], one["tenant"], one["data"]) == ("order.created", "/shop", "a", {"id": 7})
    assert (two["id"], two["subject"], two["type"], two["data"]) == ("x1", "greeting", "message", "hello")
    assert (two["datacontenttype"], three["datacontenttype"]) == ("text/plain", "text/plain")
    assert (four["datacontenttype"], four["data"]) == ("application/xml", "<a/>")


def test_the_same_id_and_source_is_stored_once(log: Log) -> None:
    for _ in range(2):
        log.run("append", "orders", "hello", "--source", "/a", "--id", "1")
    assert log.run("append", "orders", "more", "--source", "/a", "--id", "2").stdout == "orders: offset 1\n"
    assert len(events(log)) == 2


def test_a_file_becomes_one_event(log: Log, tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(bytes(range(256)) * 400)
    assert log.run("append", "photos", "--file", str(picture)).returncode == 0
    (found,) = events(log, "photos")
    assert found["datacontenttype"] == "image/png"
    assert len(str(found["data_base64"])) > 100_000
    gone = log.run("append", "photos", "--file", str(tmp_path / "none"))
    assert (gone.returncode, gone.stderr.count("\n")) == (1, 1)
    assert gone.stderr == f"error: {tmp_path / 'none'}: No such file or directory\n"


def test_each_line_of_standard_input_becomes_an_event(log: Log) -> None:
    text = "".join(f"line {i}\r\n" for i in range(3000)) + "\n\nthe last without an end"
    assert log.json("append", "orders", "--json", input=text) == {
        "topic": "orders",
        "events": 3001,
        "duplicates": 0,
        "first": 0,
        "last": 3000,
    }
    found = [event["data"] for event in events(log)]
    assert found == [*(f"line {i}" for i in range(3000)), "the last without an end"]


def test_lines_can_be_whole_events_and_a_bad_one_is_named(log: Log) -> None:
    good = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "event": "not an envelope"}
    text = json.dumps(good) + "\n" + json.dumps({**good, "id": "2"}) + "\n{}\n" + json.dumps({**good, "id": "3"})
    result = log.run("append", "orders", "--events", input=text)
    assert (result.returncode, result.stdout) == (2, "")
    assert "error: line 3 of standard input: " in result.stderr
    assert [event["id"] for event in events(log)] == ["1", "2"]


def test_lines_can_be_read_as_they_come_and_ctrl_c_leaves_the_log_in_order(log: Log) -> None:
    with log.started("append", "orders", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        deadline = time.monotonic() + PATIENCE_S
        while len(log.run("cat", "orders").stdout.splitlines()) < 2:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaint) == (130, f"new log in {log.data}\n")
    assert [event["data"] for event in events(log)] == ["one", "two"]
    with TopicLog(log.data) as again:
        assert again.report.clean


def test_nothing_to_append_says_so(log: Log) -> None:
    assert log.run("append", "orders").stdout == "orders: nothing to append\n"


def test_a_second_writer_is_told_who_writes(log: Log) -> None:
    with TopicLog(log.data):
        result = log.run("append", "orders", "x")
        told = log.run("append", "orders", "x", "--json")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {log.data} is written by process {os.getpid()} (")
    assert result.stderr.count("\n") == 1
    assert json.loads(told.stdout)["kind"] == "LogLocked"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["a//b", "x"], "is not a topic"),
        (["orders", "x", "--file", "y"], "not both"),
        (["orders", "x", "--events"], "--events takes lines"),
        (["orders", "--id", "1"], "--id is for one event"),
        (["orders", "x", "-x", "nothing"], "write NAME=VALUE"),
        (["orders", "x", "-x", "Bad-Name=1"], "Bad-Name"),
        (["orders", "x", "--source", "no uri"], "source"),
        (["orders", "x", "--content-type", "application/json"], "no JSON document"),
        (["orders", "x", "--level", "paper"], "paper"),
    ],
)
def test_what_can_not_be_used_is_refused_before_anything_is_made(log: Log, options: list[str], complaint: str) -> None:
    result = log.run("append", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert not log.data.exists()


@pytest.mark.parametrize("level", ["disk", "os", "none"])
def test_a_new_topic_can_have_another_level(log: Log, level: str) -> None:
    assert log.run("append", "orders", "x", "--level", level).returncode == 0
    assert log.json("ls", "--json")["topics"][0]["level"] == level
    other = "os" if level == "disk" else "disk"
    refused = log.run("append", "orders", "x", "--level", other)
    assert refused.returncode == 2
    assert f"has the level '{level}' already" in refused.stderr
