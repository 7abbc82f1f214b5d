"""One writer a directory, and readers that know whether its figures are of this boot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from echomesh.errors import LogLocked
from echomesh.log import LogReader, TopicLog
from tests.log.support import events_of, small
from tests.support.repository import ROOT

SECOND = """
import sys
from echomesh.errors import LogLocked
from echomesh.log import TopicLog
try:
    TopicLog(sys.argv[1])
except LogLocked as error:
    print(error.pid, error.command)
"""


def test_a_second_writer_in_another_process_is_told_who_has_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with TopicLog(tmp_path, small()) as log:
        command = [sys.executable, "-c", SECOND, str(tmp_path)]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert told.split()[0] == str(os.getpid())
        assert Path("/proc/self/cmdline").read_text().partition("\0")[0] in told
        assert log.append("a", b"still mine") == 0
        with pytest.raises(LogLocked):
            TopicLog(tmp_path, small())


def test_high_watermarks_of_another_boot_are_not_believed(tmp_path: Path) -> None:
    with TopicLog(tmp_path, small()) as log:
        log.append_many("a", [b"0", b"1"])
        with (tmp_path / "watermarks").open("r+b") as water:
            water.seek(32)
            water.write(b"another boot id!")
            water.seek(4096)
            water.write((1000).to_bytes(8, "little"))
        with LogReader(tmp_path) as reader:
            assert not reader.view.live
            assert events_of(reader.topic("a")) == [b"0", b"1"]
