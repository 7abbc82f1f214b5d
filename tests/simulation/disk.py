"""A server's disk: the real log and the real state, on storage that keeps what a crash keeps, and takes its time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

from typing_extensions import Buffer

from echomesh.errors import EchomeshError
from echomesh.log import LogOptions, LogReader, layout
from echomesh.log.core import LogCore
from echomesh.log.state import write_whole
from echomesh.log.storage import SimulatedStorage
from echomesh.mesh.log_port import LogReads
from echomesh.mesh.ports import Pending, Staging
from echomesh.mesh.state import FILE_NAME, StateFile
from echomesh.native.log_appends import Appends
from echomesh.native.log_pieces import Pieces
from tests.simulation.clock import Clock

NEVER = 1 << 60

Later = Callable[[float, Callable[[], None]], None]
"""Does something after so many seconds, if the process still lives then."""


class Storage(SimulatedStorage):
    """One that can be full, too, and knows whether only the process ends."""

    full = False
    power = False

    def _room(self, path: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False) -> int:
        if create and path not in self.files:
            self._room(path)
        return super().open(path, create=create)

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        file, path = self.handles[handle]
        if position + len(bytes(data)) > len(file.content):
            self._room(path)
        if not self.power and self.steps >= self.cut_after:
            self._step()  # a process that is killed leaves no torn write
        super().pwrite(handle, data, position)

    def allocate(self, handle: int, size: int) -> None:
        file, path = self.handles[handle]
        if size > len(file.content):
            self._room(path)
        super().allocate(handle, size)


class Disk:
    """The data directory of one server; it outlives processes."""

    def __init__(self, clock: Clock, directory: Path, *, window: bool, retention_bytes: int | None) -> None:
        random = clock.random
        self.clock = clock
        self.window = window
        self.retention_bytes = retention_bytes
        self.directory = directory
        self.storage = Storage(seed=random.randrange(1 << 30))
        self.segment_bytes = int(clock.between(1 << 10, 1 << 16))
        self.slowest = clock.between(0.0005, 0.05)
        directory.mkdir(parents=True)
        # The log would make an id by itself, another one in each run.
        write_whole(self.storage, layout.paths(directory).log_id, random.randbytes(16))

    def log_options(self) -> LogOptions:
        """Options that reach every limit soon, with nothing going on in the background."""
        return LogOptions(
            segment_bytes=self.segment_bytes,
            journal_bytes=1 << 14,
            open_segments=16,
            duplicate_bytes=(1 << 20) * self.window,
            retention_bytes=self.retention_bytes,
            parquet_after_s=None,
            background=False,
            clock=self.clock.time_ns,
            storage=self.storage,
        )

    def delay(self) -> float:
        """How long a sync takes."""
        delay = self.clock.random.uniform(0.0001, self.slowest)
        return delay * 20 if self.clock.chance(0.02) else delay

    def fail_after(self, steps: int, *, power: bool) -> None:
        """The process ends at the disk, so many writes from now."""
        self.storage.power = power
        self.storage.cut_after = self.storage.steps + steps

    def mend(self) -> None:
        """No write is the last any more."""
        self.storage.cut_after = NEVER

    def left_by_kill(self) -> None:
        """A process ended; what it wrote is there."""
        self.storage.dead = False
        self.storage.cut_after = NEVER
        self.storage.handles.clear()

    def left_by_power_cut(self) -> None:
        """What was not synced may be there or not."""
        left = self.storage.after_power_cut()
        self.storage = Storage(seed=self.clock.random.randrange(1 << 30))
        self.storage.files, self.storage.durable_names = left.files, left.durable_names
        self.storage.directories = left.directories


class Done:
    """Something that waits for the disk."""

    def __init__(self) -> None:
        self._done = False
        self._value: object = None
        self._error: Exception | None = None

    def done(self) -> bool:
        return self._done

    def result(self) -> object:
        assert self._done, "nobody may look at an answer before it is there"
        if self._error is not None:
            raise self._error
        return self._value

    def work(self, work: Callable[[], object]) -> None:
        """Does it; whoever asks is told later."""
        try:
            self._value = work()
        except EchomeshError as error:
            self._error = error

    def tell(self) -> None:
        """It can be seen from now on."""
        self._done = True


class _Loop:
    """What the log's appends want of an event loop: nothing, as the clock drives the commits."""

    def call_soon(self, callback: Callable[..., object], *args: object, context: object = None) -> None:
        """Whoever waits is asked, not called."""

    def create_future(self) -> Future[object]:
        """Holds the error of an append."""
        return Future()


class DiskLog(LogReads):
    """The port of the log: appends wait for each other and for the disk, and are answered a little after that."""

    def __init__(self, disk: Disk, later: Later, settled: Callable[[], None]) -> None:
        options = disk.log_options()
        self.core = LogCore(disk.directory, options)
        super().__init__(LogReader(disk.directory, storage=disk.storage))
        self._appends = cast(Any, Appends())
        self._appends.attach(self.core, _Loop(), -1, options.line_bytes)
        self._disk = disk
        self._later = later
        self._settled = settled
        self._committing = False
        self._cared_to = 0

    @property
    def log_id(self) -> bytes:
        return self.core.log_id

    @property
    def staging(self) -> Staging:
        return self.core.stages

    def append(self, topic: str, event: bytes, *, environment: str, origin: bytes | None = None) -> Pending:
        self._commit_soon()
        pending: Pending = self._appends.append(topic, event, environment=environment, origin=origin)
        return pending

    def append_many(
        self,
        topic: str,
        events: Sequence[Buffer] | Pieces,
        *,
        environment: str,
        origins: Sequence[bytes] | bytes | None = None,
    ) -> Pending:
        self._commit_soon()
        pending: Pending = self._appends.append_many(topic, events, environment=environment, origins=origins)
        return pending

    def _commit_soon(self) -> None:
        if not self._committing:
            self._committing = True
            self._later(self._disk.delay(), self._commit)

    def _commit(self) -> None:
        # Readers see it at once; those who wait are told when the server's turn comes.
        self._committing = False
        self.core.commits.wait_idle()
        self._later(self._disk.clock.random.uniform(0.0, 0.002), self._answer)

    def _answer(self) -> None:
        self._appends._pass()
        if self._appends.line_bytes:
            self.care()
            self._commit_soon()
        self._settled()

    def beside(self, work: Callable[[], object]) -> Pending:
        done = Done()

        def worked() -> None:
            done.work(work)
            done.tell()
            self._settled()

        self._later(self._disk.delay(), worked)
        return done

    def care(self) -> None:
        """What the log does beside appends, if there were some."""
        if self._cared_to != self.core.commits.done and not self._disk.storage.full:
            self._cared_to = self.core.commits.done
            self.core.keeper.care()


class DiskState:
    """The port of the state: a sync takes its time."""

    def __init__(self, disk: Disk, log_id: bytes, later: Later, settled: Callable[[], None]) -> None:
        self.file = StateFile(
            disk.directory / FILE_NAME,
            log_id,
            storage=disk.storage,
            compact_bytes=4096,
            clock=lambda: disk.clock.now,
            entropy=disk.clock.random.randbytes,
        )
        self.get, self.items = self.file.get, self.file.items
        self.put, self.delete = self.file.put, self.file.delete
        self.flush = self.file.flush
        self._disk = disk
        self._later = later
        self._settled = settled

    def sync(self) -> Pending:
        """What was put survives the process now, and a power cut when this is done."""
        self.file.flush()
        done = Done()

        def synced() -> None:
            done.work(self.file.sync().result)
            done.tell()
            self._settled()

        self._later(self._disk.delay(), synced)
        return done
