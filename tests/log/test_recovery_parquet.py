"""Commits that the journal has lost, of offsets whose segments are Parquet files by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.log import LogReader, TopicLog
from tests.log.parquet_support import compacted, event, everything, files, seen
from tests.log.support import crash, small


def journaled(directory: Path, number: int) -> tuple[TopicLog, dict[Path, bytes]]:
    """A log with a commit for each event, and its first checkpoint."""
    log = TopicLog(directory, small())
    old = {path: path.read_bytes() for path in directory.glob("checkpoint*")}
    for i in range(number):
        log.append("a", event(i))
    return log, old


def convert(log: TopicLog, directory: Path) -> None:
    log.core.keeper.sync()
    log.core.keeper.checkpoint()
    assert len(compacted(directory).done) >= 2


def go_back(directory: Path, old: dict[Path, bytes]) -> None:
    """The checkpoint is the old one again, so that the whole journal is replayed."""
    for path in directory.glob("checkpoint*"):
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)


def ruin(directory: Path, numbers: range) -> None:
    """Commits with these numbers can't be read any more."""
    for journal in (directory / "journal").iterdir():
        data = bytearray(journal.read_bytes())
        for at in range(0, len(data), 512):
            if any(data[at : at + 8]) and int.from_bytes(data[at + 16 : at + 24], "little") in numbers:
                data[at : at + 64] = b"\xa5" * 64
        journal.write_bytes(data)


@pytest.mark.parametrize("first", [2, 20, 33, 55])
@pytest.mark.parametrize("count", [1, 40])
def test_lost_commits_are_no_loss_where_a_converted_segment_has_their_events(
    tmp_path: Path, first: int, count: int
) -> None:
    log, old = journaled(tmp_path, 100)
    convert(log, tmp_path)
    log.append("a", event(100))
    before = everything(log.reader().topic("a"))
    crash(log)
    go_back(tmp_path, old)
    ruin(tmp_path, range(first, first + count))
    assert seen(tmp_path) == before
    parquet = files(tmp_path, "parquet")
    with TopicLog(tmp_path, small()) as log:
        assert any("are missing" in note for note in log.report.notes)
        assert not log.report.corrupt
        assert log.append("a", event(101)) == 101
    assert seen(tmp_path)[:-1] == before
    assert files(tmp_path, "parquet") == parquet
    assert len(files(tmp_path, "seg")) == 1


def test_what_neither_the_journal_nor_a_segment_has_is_corrupt_beside_converted_ones(tmp_path: Path) -> None:
    log, old = journaled(tmp_path, 100)
    convert(log, tmp_path)
    crash(log)
    go_back(tmp_path, old)
    last = sorted(tmp_path.rglob("*.seg"))[-1]
    base = int(last.stem)
    # The commit number of an event is its offset and one more.
    ruin(tmp_path, range(20, base + 4))
    last.write_bytes(last.read_bytes()[:64] + bytes(last.stat().st_size - 64))
    with TopicLog(tmp_path, small()) as log:
        assert log.report.corrupt == [("a", base, base + 2)]
    with LogReader(tmp_path) as reader:
        topic = reader.topic("a")
        assert topic.read(base - 1).events() == [event(base - 1)]
        assert topic.read(base + 3).events()[0] == event(base + 3)


def test_a_staged_commit_whose_rows_were_copied_and_converted_is_not_copied_again(tmp_path: Path) -> None:
    log, old = journaled(tmp_path, 5)
    stage = log.stage("w", 0, "r")
    for i in range(5, 100):
        stage.add("a", event(i))
    log.commit("w", 0, "r", [stage.close().stage])
    log.append("a", event(100))
    convert(log, tmp_path)
    before = everything(log.reader().topic("a"))
    assert [entry[3] for entry in before] == [event(i) for i in range(101)]
    crash(log)
    for path in (tmp_path / "staging").iterdir():
        path.unlink()
    go_back(tmp_path, old)
    assert seen(tmp_path) == before
    with TopicLog(tmp_path, small()) as log:
        assert any("can't be copied again" in note for note in log.report.notes)
        assert not log.report.corrupt
        assert everything(log.reader().topic("a")) == before
