from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.harness.command import parts
from bench.harness.machine import OtherLoad, _own_seconds, machine
from bench.harness.rows import Row, compare, row_of, write
from bench.harness.table import table

KEYS = {"case", "ours", "peer", "peer_value", "unit", "ratio", "target", "repetitions", "spread"}


def test_rows_are_written_with_all_keys_and_the_machine(tmp_path: Path) -> None:
    rows = [
        compare("64 B", [10.0, 12.0, 11.0], "peer", [2.0, 2.0, 2.0], unit="messages/s", target=5.0),
        row_of({"case": "a part with dicts", "ours": 1.5, "unit": "us", "spread": 0.1, "target": "at most 2"}),
        compare("nothing measured", [], "peer", [], unit="µs"),
    ]
    path = write("rings", machine(), rows, tmp_path)
    written = json.loads(path.read_text())
    assert path == tmp_path / "rings.json"
    assert {"cores", "cpu", "kernel", "python", "packages"} <= set(written["machine"])
    assert len(written["rows"]) == 3
    assert all(set(row) >= KEYS for row in written["rows"])
    assert list(tmp_path.iterdir()) == [path]


def test_a_ratio_is_the_median_of_the_repetitions_ratios() -> None:
    row = compare("case", [10.0, 30.0, 8.0], "peer", [2.0, 3.0, 4.0], unit="messages/s", target=5.0)
    assert (row.ratio, row.spread, row.repetitions, row.met) == (5.0, [2.0, 10.0], 3, True)


def test_a_ratio_of_latencies_is_turned_so_that_more_is_better() -> None:
    row = compare("case", [2.0], "peer", [6.0], unit="µs", target=4.0, less_is_better=True)
    assert (row.ratio, row.met) == (3.0, False)


def test_figures_that_make_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        compare("case", [1.0], "peer", [], unit="µs")


def test_a_case_without_figures_has_not_met_its_target() -> None:
    assert compare("case", [], "peer", [], unit="µs", target=1.0).met is False


def test_what_a_running_child_uses_is_not_the_load_of_others() -> None:
    before = _own_seconds()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            until = time.monotonic() + 30
            while _own_seconds() - before < 0.2 and time.monotonic() < until:
                time.sleep(0.05)
            assert _own_seconds() - before >= 0.2
        finally:
            child.kill()
    assert _own_seconds() - before >= 0.2, "and is not when it has ended"


def test_a_row_is_noisy_when_others_used_the_machine() -> None:
    figures = {"case": "case", "ours": 1.0, "unit": "µs"}
    assert row_of({**figures, "other_cpus": 0.5}).noisy
    assert not row_of({**figures, "other_cpus": 0.1}).noisy
    assert not row_of(figures).noisy


def test_the_table_shows_every_row() -> None:
    rows = [row_of({"case": name, "ours": 1.0}) for name in ("one", "two")]
    assert table("rings", rows).row_count == 2


def test_rows_that_are_rows_already_stay_as_they_are() -> None:
    row = Row("case", 1.0, "peer", 2.0, "µs", 2.0, None, 1, None)
    assert row_of(row) is row


def test_others_load_is_a_number_of_processors() -> None:
    assert OtherLoad().cpus() >= 0.0


def test_parts_are_found_by_name() -> None:
    assert "rings" in parts()
