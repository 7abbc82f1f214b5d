"""The state: values by key that survive the end of the process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import ClosedError, MessageTooLarge, UsageError
from echomesh.log.storage import RealStorage
from echomesh.mesh.ports import StatePort
from echomesh.mesh.state import KEY_BYTES, VALUE_BYTES, StateFile
from echomesh.mesh.state_table import Table
from tests.mesh.state_support import LOG_ID, Key, content, drop, found, fresh_directory, opened
from tests.support.counts import count
from tests.support.repository import ROOT

KEYS = st.lists(st.sampled_from(["", "a", "b", "ab", "é", "a/b"]), min_size=1, max_size=4).map(tuple)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, VALUES)
    | st.tuples(st.just("delete"), KEYS, st.none())
    | st.tuples(st.sampled_from(["flush", "sync", "compact", "open", "close"]), st.none(), st.none()),
    max_size=40,
)


def as_port(state: StateFile) -> StatePort:
    return state


@given(STEPS)
def test_it_is_a_dict_that_survives(steps: list[Any]) -> None:
    with fresh_directory() as directory:
        state, model = opened(directory), dict[Key, object]()
        for step, key, value in steps:
            if step == "put":
                state.put(key, value)
                model[key] = value
            elif step == "delete":
                state.delete(key)
                model.pop(key, None)
            elif step == "compact":
                state.flush()
                state._journal.rewrite()
            elif step == "open":
                assert state.flush()
                drop(state)
                state = opened(directory)
                assert state.report.clean
            elif step == "close":
                state.close()
                state = opened(directory)
            else:
                assert getattr(state, step)()
            assert content(state) == model
            assert len(state) == len(model)
        assert state.flush()
        drop(state)
        assert found(directory) == model


@given(st.dictionaries(KEYS, st.integers(0, 9)), KEYS | st.just(()))
def test_items_are_found_by_the_beginning_of_their_keys(entries: dict[Key, int], prefix: Key) -> None:
    table = Table()
    for key, value in entries.items():
        table.put(key, b"%d" % value)
    expected = [(key, b"%d" % value) for key, value in sorted(entries.items()) if key[: len(prefix)] == prefix]
    assert table.items(prefix) == expected
    assert sorted(entry for batch in table.batches(10) for entry in batch) == table.items(())
    for key in entries:
        assert table.delete(key)
        assert not table.delete(key)
    assert table.items(()) == []
    assert len(table) == 0


def test_a_table_can_be_changed_while_it_is_written(tmp_path: Path) -> None:
    table = Table()
    for i in range(100):
        table.put((f"group {i % 10}", str(i)), b"old")
    seen = dict[Key, bytes]()
    for number, batch in enumerate(table.batches(20)):
        seen.update(batch)
        table.put((f"group {number % 10}", f"new {number}"), b"new")
        table.put((f"new group {number}", "a"), b"new")
        table.delete((f"group {number % 10}", str(number)))
    assert {key for key, value in seen.items() if value == b"old"} >= dict(table.items(())).keys() & {
        (f"group {i % 10}", str(i)) for i in range(100)
    }


def test_a_flush_is_one_write_with_the_latest_value_of_each_key(tmp_path: Path) -> None:
    state = opened(tmp_path)
    before = state.file_bytes
    for i in range(1000):
        state.put(("cursor", "TST", "shop", "orders"), i)
    assert state.file_bytes == before
    assert state.flush()
    assert state.file_bytes - before < 100
    assert found(tmp_path) == {("cursor", "TST", "shop", "orders"): 999}
    before = state.file_bytes
    state.put(("cursor", "TST", "shop", "orders"), 999)
    assert state.flush()
    assert state.file_bytes == before, "what is known already is not written again"


def test_a_value_is_kept_as_it_was_when_it_was_put(tmp_path: Path) -> None:
    state = opened(tmp_path)
    value: dict[str, object] = {"tries": {3: 1}, "way": [["urn", 4889]]}
    state.put(("a",), value)
    value["tries"] = 5
    assert state.get(("a",)) == {"tries": {3: 1}, "way": [["urn", 4889]]}
    state.put(("b",), ((1, 2), b"x"))
    assert state.get(("b",)) == [[1, 2], b"x"], "the same before and after a restart"
    assert state.flush()
    assert found(tmp_path) == content(state)
    assert as_port(state).get(("c",)) is None


@pytest.mark.parametrize("value", [object(), 1 << 64, "\ud800", [object()]])
def test_what_can_not_be_kept_is_refused_at_once(tmp_path: Path, value: object) -> None:
    state = opened(tmp_path)
    state.put(("good",), 1)
    with pytest.raises(UsageError):
        state.put(("bad",), value)
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(UsageError):
        state.put(("deep",), nested)
    while nested:
        nested = nested.pop()  # type: ignore[assignment]
    assert state.flush()
    assert found(tmp_path) == {("good",): 1}


@pytest.mark.parametrize("key", [(), ("a", 1), ("\ud800",), ["a"], "a"])
def test_a_bad_key_is_refused_at_once(tmp_path: Path, key: Any) -> None:
    state = opened(tmp_path)
    state.put(("good",), 1)
    with pytest.raises((UsageError, TypeError)):
        state.put(key, 1)
    assert state.flush()
    assert found(tmp_path) == {("good",): 1}


def test_keys_and_values_have_a_limit(tmp_path: Path) -> None:
    state = opened(tmp_path)
    with pytest.raises(MessageTooLarge):
        state.put(("k" * KEY_BYTES,), 1)
    with pytest.raises(MessageTooLarge):
        state.put(("k",), bytes(VALUE_BYTES))
    state.put(("k",), bytes(VALUE_BYTES - 8))
    assert state.sync().done()
    assert found(tmp_path) == {("k",): bytes(VALUE_BYTES - 8)}


def test_the_file_stays_small_however_much_is_put(tmp_path: Path) -> None:
    state = opened(tmp_path, compact_bytes=1 << 14)
    largest = 0
    for i in range(20_000):
        state.put(("cursor", "TST", f"client-{i % 50}", "topic"), i)
        assert state.flush()
        largest = max(largest, state.file_bytes)
    assert 1 << 13 < largest < 3 << 13
    assert found(tmp_path) == content(state)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_closed_state_takes_no_writes(tmp_path: Path) -> None:
    state = opened(tmp_path, threaded=True)
    state.put(("a",), 1)
    state.close()
    state.close()
    with pytest.raises(ClosedError):
        state.flush()
    with pytest.raises(ClosedError):
        state.sync()
    assert found(tmp_path) == {("a",): 1}


def test_syncs_in_a_thread_are_told_when_they_are_done(tmp_path: Path) -> None:
    told = threading.Semaphore(0)
    state = opened(tmp_path, threaded=True, notify=told.release)
    syncs = []
    for i in range(100):
        state.put(("a", str(i)), i)
        syncs.append(state.sync())
    while not all(sync.done() for sync in syncs):
        assert told.acquire(timeout=30)
    for sync in syncs:
        sync.result()
    again = state.sync()
    assert again.done(), "all of it is on disk already"
    assert found(tmp_path) == content(state)
    state.close()


def test_puts_go_on_while_a_thread_compacts(tmp_path: Path) -> None:
    state = opened(tmp_path, threaded=True, compact_bytes=1 << 12)
    chosen = random.Random(1)
    compactions = 0
    before = state.file_bytes
    for i in range(count(20_000, 400_000)):
        key = ("k", str(chosen.randrange(40)), str(chosen.randrange(10)))
        if chosen.random() < 0.1:
            state.delete(key)
        else:
            state.put(key, i)
        if chosen.random() < 0.3:
            assert state.flush()
        if state.file_bytes < before:
            compactions += 1
        before = state.file_bytes
        if i % 1000 == 0:
            assert state.flush()
            assert read_only(tmp_path) == content(state)
    assert compactions > 3
    state.close()
    assert found(tmp_path) == content(state)


def read_only(directory: Path) -> dict[Key, object]:
    """What one finds who reads the file while another one writes it, right after a flush."""
    copy = directory / "copy"
    copy.mkdir(exist_ok=True)
    (copy / "state").write_bytes((directory / "state").read_bytes())
    return found(copy)


def test_the_end_of_a_loop_does_not_end_the_thread(tmp_path: Path) -> None:
    def closed_loop() -> None:
        raise RuntimeError("Event loop is closed")

    state = opened(tmp_path, threaded=True, notify=closed_loop)
    for i in range(10):
        state.put(("a",), i)
        state.sync()
    state.close()
    assert found(tmp_path) == {("a",): 9}


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    state = opened(tmp_path / "new" / "one")
    assert state.report.new
    state.put(("a",), 1)
    state.close()
    assert found(tmp_path / "new" / "one") == {("a",): 1}


def test_a_value_that_was_never_synced_is_not_called_safe_after_a_restart(tmp_path: Path) -> None:
    syncs: list[str] = []

    class Counting(RealStorage):
        def fdatasync(self, handle: int) -> None:
            syncs.append("file")
            super().fdatasync(handle)

        def sync_directory(self, path: str) -> None:
            syncs.append("name")
            super().sync_directory(path)

    state = opened(tmp_path)
    state.put(("a",), 1)
    assert state.flush()
    again = opened(tmp_path, Counting())
    assert again.report.clean
    assert not syncs
    again.sync().result()
    assert syncs == ["name", "file"]
    again.sync().result()
    assert syncs == ["name", "file"]


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_process_loses_nothing_that_it_flushed(tmp_path: Path) -> None:
    chosen = random.Random(4)
    done: dict[str, int] = {}
    for round in range(count(20, 200)):
        begun = round * 1_000_000
        flushed, last_put = run_and_kill(tmp_path, begun, chosen)
        state = opened(tmp_path)
        drop(state)
        values = {key[1]: value for key, value in state.items(("k",))}
        assert not state.report.lost
        assert not state.report.mended
        done |= flushed
        for name, least in done.items():
            value = values[name]
            assert isinstance(value, int)
            # Never older than what was flushed, and if newer, then what was being put.
            assert least <= value <= max(least, last_put)
    assert len(done) == 100


def run_and_kill(directory: Path, begun: int, chosen: random.Random) -> tuple[dict[str, int], int]:
    """Runs a process that puts and flushes, for a moment; what it flushed by name, and the last it may have put."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.mesh.state_process", str(directory / "state"), str(begun)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    killer = threading.Timer(chosen.uniform(0.0, 0.2), process.kill)
    killer.start()
    lines = process.stdout.read().split(b"\n")[:-1]
    process.wait()
    killer.join()
    process.stdout.close()
    # Each line: flushed up to here. All names were put in turn.
    upto = int(lines[-1]) if lines else begun
    return {str(i % 100): i for i in range(max(begun, upto - 100), upto)}, begun + 999_999


def test_the_log_id_of_the_directory_is_in_the_file(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.put(("a",), 1)
    state.close()
    other = StateFile(tmp_path / "state", bytes(16))
    assert content(other) == {}
    assert "belongs to the log " + LOG_ID.hex() in str(other.report)
    assert other.report.aside == str(tmp_path / "state.aside")
    (tmp_path / "state.aside").rename(tmp_path / "state")
    assert found(tmp_path) == {("a",): 1}


def test_a_foreign_program_can_read_the_file(tmp_path: Path) -> None:
    """As docs/format-state.md has it, with nothing of ours but the sum."""
    state = opened(tmp_path)
    state.put(("a", "b"), [1, "x"])
    state.put(("c",), 2)
    assert state.flush()
    state.delete(("c",))
    state.close()
    data = (tmp_path / "state").read_bytes()
    assert data[:12] == b"EMSTATE\x01\x01\0\0\0"
    assert data[12:28] == LOG_ID
    mark, at, values = data[28:36], 40, dict[Key, object]()
    while at < len(data):
        assert data[at : at + 8] == mark
        size = int.from_bytes(data[at + 12 : at + 16], "little")
        for key, value in msgspec.msgpack.decode(data[at + 24 : at + 24 + size]):
            if value is None:
                del values[tuple(key)]
            else:
                values[tuple(key)] = msgspec.msgpack.decode(value)
        at += 24 + size
    assert values == {("a", "b"): [1, "x"]}
