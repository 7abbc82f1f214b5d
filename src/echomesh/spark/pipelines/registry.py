"""What runs, and how it fares: a file for each pipeline beside its checkpoints, and a lock of the kernel."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from echomesh.errors import BusyError, DamagedError, PipelineBusy, UnknownPipeline
from echomesh.spark.locks import held

FILE: Final = "pipeline.json"
LOCK: Final = "lock"
_TRIES: Final = 10  # whoever looks at a lock holds it for a moment
_TRY_S: Final = 0.02
_LOOK_S: Final = 0.05

State: TypeAlias = Literal["starting", "running", "waiting", "stopped", "finished", "failed", "died"]


class Figures(msgspec.Struct, kw_only=True):
    """How far the query of one output has come."""

    output: str
    target: str
    query: str = ""
    batch: int = -1
    rows: int = 0  # of this run
    batch_rows: int = 0
    rows_per_s: float = 0.0
    lag: int = 0  # events that wait in the log
    batch_ms: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    late: int = 0  # rows of this run that came after the watermark
    lost: int = 0  # events that the query went on without
    watermark: str = ""
    at: str = ""
    restarts: int = 0
    why: str = ""  # what the last restart was for
    topics: list[tuple[str, int]] = []  # those with most lag


class Entry(msgspec.Struct, kw_only=True):
    """One pipeline, as its file has it."""

    name: str
    file: str
    state: State
    pid: int
    host: str
    started: str
    updated: str
    master: str
    checkpoint: str
    log: str = ""
    why: str = ""
    retry_s: float = 0.0
    queries: list[Figures] = []

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.state in ("starting", "running", "waiting")


class Registry:
    """The pipelines below a directory."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def entries(self) -> list[Entry]:
        """All of them, by name."""
        names = sorted(path.parent.name for path in self.home.glob(f"*/{FILE}"))
        return [self.entry(name) for name in names]

    def entry(self, name: str) -> Entry:
        """One of them, as it is now: what says that it runs, and whose lock is free, died."""
        found = self._read(name)
        if found.alive and found.host == socket.gethostname() and not held(self.home / name / LOCK):
            # It may have ended between the two looks.
            found = self._read(name)
            if found.alive:
                found.state = "died"
        return found

    def _read(self, name: str) -> Entry:
        path = self.home / name / FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Entry)
        except (FileNotFoundError, NotADirectoryError):
            known = sorted(each.parent.name for each in self.home.glob(f"*/{FILE}"))
            there = f"there is {', '.join(known)}" if known else "none has run yet"
            raise UnknownPipeline(f"no pipeline {name} in {self.home}: {there}") from None
        except msgspec.MsgspecError as error:
            raise DamagedError(f"{path} is no entry of a pipeline: {error}") from None

    def write(self, entry: Entry) -> None:
        """Keeps an entry; readers see the old one or the new one."""
        entry.updated = now()
        path = self.home / entry.name / FILE
        fresh = path.with_name(f".{FILE}.new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(entry)))
        fresh.rename(path)

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """While this holds nobody else runs the pipeline; `PipelineBusy` says who does."""
        directory = self.home / name
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _taken(handle):
                raise self._busy(name)
            yield
        finally:
            os.close(handle)

    def _busy(self, name: str) -> PipelineBusy:
        with contextlib.suppress(UnknownPipeline, DamagedError):
            found = self._read(name)
            return PipelineBusy(name, found.pid, found.host, found.started)
        return PipelineBusy(name, 0, "", "")

    def stop(self, name: str, wait_s: float) -> Entry:
        """Asks the process that runs the pipeline to stop, and waits until it has."""
        found = self.entry(name)
        if not found.alive:
            return found
        if found.host != socket.gethostname():
            raise BusyError(f"pipeline {name} runs on {found.host}, process {found.pid}: stop it there")
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGTERM)
        deadline = time.monotonic() + wait_s
        while held(self.home / name / LOCK):
            if time.monotonic() > deadline:
                raise BusyError(f"pipeline {name}, process {found.pid}, has not stopped within {wait_s:g} s")
            time.sleep(_LOOK_S)
        return self.entry(name)


def _taken(handle: int) -> bool:
    for attempt in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt + 1 < _TRIES:
                time.sleep(_TRY_S)
    return False


def now() -> str:
    """This moment, as entries have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
