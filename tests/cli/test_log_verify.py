"""`echomesh log verify`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from echomesh.log import TopicLog
from tests.cli.log_support import PATIENCE_S, Log, event, filled


def segments(data: Path, topic: int = 0) -> list[Path]:
    return sorted((data / "topics" / f"{topic:08d}").glob("*.seg"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_a_sound_log_is_found_sound(log: Log) -> None:
    filled(log.data, {"orders": 500, "alarms": 3}, segment_bytes=1 << 14)
    result = log.run("verify")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("503 events in 2 topics, ")
    assert "every CRC is right" in result.stdout
    found = log.json("verify", "--json")
    assert (found["ok"], found["events"], found["topics"], found["corrupt"], found["lost"]) == (True, 503, 2, [], [])
    assert log.json("verify", "alarms", "--json")["events"] == 3


def test_corrupt_ranges_are_named_and_the_rest_is_checked_all_the_same(log: Log) -> None:
    filled(log.data, {"orders": 500, "alarms": 3}, segment_bytes=1 << 14)
    paths = segments(log.data)
    flip(paths[1], 2000)
    flip(paths[3], 9000)
    flip(paths[3], 9001)
    result = log.run("verify")
    assert (result.returncode, result.stderr) == (1, "")
    bad = [line for line in result.stdout.splitlines() if "are corrupt" in line]
    assert [line.startswith("orders (TST): offsets ") for line in bad] == [True, True]
    assert str(paths[1]) in bad[0]
    assert str(paths[3]) in bad[1]
    found = log.json("verify", "--json")
    lost = sum(each["last"] - each["first"] + 1 for each in found["corrupt"])
    assert (found["ok"], found["events"]) == (False, 503 - lost)
    assert 2 <= lost <= 4
    assert log.run("verify", "alarms").returncode == 0


def test_a_damaged_header_takes_the_whole_segment(log: Log) -> None:
    filled(log.data, {"orders": 500}, segment_bytes=1 << 14)
    flip(segments(log.data)[1], 30)
    (bad,) = log.json("verify", "--json")["corrupt"]
    firsts = [int(path.stem) for path in segments(log.data)]
    assert (bad["first"], bad["last"]) == (firsts[1], firsts[2] - 1)


def test_a_damaged_index_is_told_but_no_event_is_bad(log: Log) -> None:
    filled(log.data, {"orders": 500}, size=200)
    flip(segments(log.data)[0].with_suffix(".idx"), 3)
    result = log.run("verify")
    assert result.returncode == 0
    assert "its index is damaged" in result.stdout


def test_a_log_is_verified_while_it_is_written(log: Log) -> None:
    with TopicLog(log.data) as writer:
        writer.append_many("orders", [event(i) for i in range(100)])
        assert log.json("verify", "--json")["events"] == 100


def test_a_bar_is_drawn_on_a_terminal_and_only_there(log: Log) -> None:
    filled(log.data, {"orders": 20_000}, size=500)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "echomesh", "log", "verify", "--json"]
    environment = {**log.environment, "TERM": "xterm"}
    done = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        drawn += chunk
    os.close(ours)
    text, _ = done.communicate(timeout=PATIENCE_S)
    assert text.startswith('{"ok": true')
    assert b"verifying" in drawn
