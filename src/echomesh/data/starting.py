"""Finding the participant of this machine, user and domain, or starting it as a process of its own.

[config-dir]/.participant/lock       locked by the participant for as long as it lives
[config-dir]/.participant/starting   taken by who starts one: two processes that do so at once get one participant
[config-dir]/.participant/address    its port and cookie, for this user alone
[config-dir]/.participant/log        what it has to say, when nobody watches it
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from echomesh.data.config import DataOptions
from echomesh.errors import BusyError, FileGone, NoParticipant, OwnerAlive
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.locks import KernelLock, holder, turn

START_S: Final = 20.0
"""For how long a participant may take to start."""
_HANDOVER_S: Final = 5.0
_LOOK_S: Final = 0.01


class Address(msgspec.Struct, frozen=True):
    """Where the participant listens for this machine's processes, and the cookie that it wants to see."""

    port: int
    cookie: bytes
    pid: int


class Home:
    """The participant's own files in the directory where the nuklei meet."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.path = directory.root / ".participant"
        self._lock: KernelLock | None = None

    @property
    def log(self) -> Path:
        """What it writes when nobody watches."""
        return self.path / "log"

    @property
    def starting(self) -> Path:
        """Locked by who starts a participant."""
        return self.path / "starting"

    def prepare(self) -> None:
        """Makes the directory, for this user alone."""
        while True:
            self.directory.prepare()
            try:
                self.path.mkdir(mode=0o700, exist_ok=True)
                return
            except FileNotFoundError:  # the last one left just now, and took the directory with it
                continue

    def pid(self) -> int | None:
        """The process of the participant that lives, if one does."""
        return holder(self.path / "lock")

    def enter(self) -> None:
        """Becomes the one participant of this directory; `OwnerAlive` when there is one and it stays."""
        deadline = time.monotonic() + _HANDOVER_S
        while True:
            self.prepare()
            try:
                self._lock = KernelLock.acquire(self.path / "lock")
                return
            except FileGone:
                continue
            except BusyError:
                # One that is about to end has taken its address away already, and is waited for.
                if self.address() is not None or time.monotonic() > deadline:
                    raise OwnerAlive("participant", str(self.directory.root), self.pid() or 0) from None
                time.sleep(_LOOK_S)

    def publish(self, port: int, cookie: bytes) -> None:
        """Tells this user's processes where the participant is, and the cookie that they shall show."""
        making = self.path / "address.new"
        making.unlink(missing_ok=True)
        descriptor = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Address(port, cookie, os.getpid())))
        making.replace(self.path / "address")

    def address(self) -> Address | None:
        """What was told, whether or not who told it is alive."""
        try:
            return msgspec.json.decode((self.path / "address").read_bytes(), type=Address)
        except (OSError, msgspec.MsgspecError):
            return None

    def withdraw(self) -> None:
        """Nobody shall come any more."""
        (self.path / "address").unlink(missing_ok=True)

    def leave(self) -> None:
        """Removes all files of the participant, and the directory where nothing else is in it."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if self.path.exists():  # else somebody removed it, and it must not come back
            with contextlib.suppress(BusyError), self.directory.locked():
                shutil.rmtree(self.path, ignore_errors=True)
                lock.release()
                self.directory.clean()
                self.directory.fold()
        lock.release()


def find(options: DataOptions) -> Address | None:
    """Where the participant is, if one runs."""
    home = Home(options.meeting())
    return home.address() if home.pid() is not None else None


def reach(options: DataOptions) -> Address:
    """Where the participant is; it is started where none runs."""
    return find(options) or _start(options)


def _start(options: DataOptions) -> Address:
    home = Home(options.meeting())
    while True:
        home.prepare()
        try:
            with turn(home.starting, START_S):
                found = find(options)
                if found is None:
                    _spawn(options)
                    found = find(options)
                if found is not None:
                    return found
        except FileGone:  # the last one left just now, and took the directory with it
            continue
        except BusyError as error:
            raise NoParticipant(f"somebody has been starting the participant for {START_S:g} s: {error}") from None
        raise NoParticipant(f"the participant ended at once: see {home.log}, or run `echomesh participant` to watch it")


def _spawn(options: DataOptions) -> None:
    # The process that is started here leaves the participant behind as nobody's child, and ends when that is ready.
    command = [sys.executable, "-m", "echomesh.data", json.dumps(options.to_dict())]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoParticipant(f"the participant could not be started: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoParticipant(f"the participant did not start: {said[-1] if said else f'code {done.returncode}'}")
