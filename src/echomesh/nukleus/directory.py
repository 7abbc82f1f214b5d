"""Where nuklei meet: one directory of a user and a domain, with a directory a nukleus in it.

[config-dir]/.lock                  taken while nuklei come, go or are declared dead
[config-dir]/[name]/owner           locked by the nukleus for as long as it lives
[config-dir]/[name]/control         commands, responses, counters
[config-dir]/[name]/control.lock    taken by a controller for each command
[config-dir]/[name]/doorbell        rung by those who give it work (and doorbell.fifo)
[config-dir]/[name]/streams/[source]
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from echomesh.errors import BadName, BusyError, FileGone, OwnerAlive, StorageError
from echomesh.native.mapping import translated
from echomesh.nukleus.locks import KernelLock, holder, turn

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", re.ASCII)
_LOCK_TIMEOUT_S = 10.0
_MAKING = ".new"


def check_name(name: object) -> str:
    """The name, when it is one plain path segment that no peer could mistake."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(name)
    return name


def default_domain() -> str:
    """`ECHOMESH_DOMAIN`, else `default`."""
    return check_name(os.environ.get("ECHOMESH_DOMAIN", "default"))


def default_root(domain: str | None = None) -> Path:
    """`ECHOMESH_DIR`, else this user's directory in shared memory, one for each domain."""
    if given := os.environ.get("ECHOMESH_DIR"):
        return Path(given)
    return _users_root() / (default_domain() if domain is None else check_name(domain))


def _users_root() -> Path:
    return Path("/dev/shm") / f"echomesh-{os.geteuid()}"


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one nukleus."""

    path: Path

    @property
    def name(self) -> str:
        """The nukleus's name."""
        return self.path.name

    @property
    def owner(self) -> Path:
        """Locked by the nukleus while it lives."""
        return self.path / "owner"

    @property
    def control(self) -> Path:
        """Its control file."""
        return self.path / "control"

    @property
    def command_lock(self) -> Path:
        """Taken by a controller for each command."""
        return self.path / "control.lock"

    @property
    def doorbell(self) -> Path:
        """Rung by those who give it work."""
        return self.path / "doorbell"

    @property
    def streams(self) -> Path:
        """The directory of the rings that it reads."""
        return self.path / "streams"

    def stream(self, source: str) -> Path:
        """The ring that `source` writes and this nukleus reads."""
        return self.streams / check_name(source)

    def foreign(self) -> bool:
        """Whether it was made by another implementation: nobody can tell then whether it lives."""
        try:
            return self.path.exists() and not self.owner.is_file()
        except PermissionError:  # another user's
            return True

    def owner_pid(self) -> int | None:
        """The process that runs it, or None when nobody does (or nobody can tell)."""
        return holder(self.owner)


class Directory:
    """A config-dir. Making one touches nothing; `prepare` makes the directory."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()

    def place(self, name: str) -> Place:
        """Where the nukleus of that name is, or would be."""
        return Place(self.root / check_name(name))

    def places(self) -> list[Place]:
        """All nuklei, alive or not, by name."""
        if not self.root.is_dir():
            return []
        return [Place(path) for path in sorted(self.root.iterdir()) if _NAME.fullmatch(path.name) and path.is_dir()]

    def prepare(self) -> None:
        """Makes the directory, for this user alone; refuses one that another user could have laid out."""
        try:
            for path in (self.root.parent, self.root):
                if not path.exists():
                    path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.root.stat(follow_symlinks=False)
            above = self.root.parent.stat()
        except OSError as error:
            raise translated(error.errno or 0, str(self.root)) from None
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise StorageError(
                1, "not a directory that only this user can write: remove it or set ECHOMESH_DIR", str(self.root)
            )
        # Who owns the directory above, or may write to it and it is not sticky, could put another in its place.
        if above.st_uid not in (0, os.geteuid()) or (above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX):
            raise StorageError(
                1, "in a directory that another user can change: remove it or set ECHOMESH_DIR", str(self.root)
            )

    @contextlib.contextmanager
    def locked(self, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
        """No nukleus of this directory comes, goes or is declared dead while this holds."""
        with contextlib.ExitStack() as held:
            while True:
                self.prepare()
                try:
                    held.enter_context(turn(self.root / ".lock", timeout_s))
                    break
                except FileGone:  # the last nukleus left, and took the directory with it
                    continue
            yield

    def clean(self, spared: Container[str] = ()) -> list[str]:
        """Removes what dead nuklei left, under the lock, and tells their names; foreign ones are left alone."""
        removed = []
        for path in self.root.iterdir():
            if path.name.startswith(_MAKING):
                shutil.rmtree(path, ignore_errors=True)
        for place in self.places():
            if place.name in spared or place.foreign() or place.path.is_symlink() or not self._ours(place):
                continue
            if place.owner_pid() is None:
                self._remove(place)
                removed.append(place.name)
        return removed

    def _remove(self, place: Place) -> None:
        # Renamed first: one killed here must not leave a directory without an owner, which would look foreign.
        going = self._aside(place.name)
        shutil.rmtree(going, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.path.rename(going)
            shutil.rmtree(going, ignore_errors=True)

    def _ours(self, place: Place) -> bool:
        try:
            return place.path.stat().st_uid == os.geteuid()
        except OSError:  # a foreign one that just went
            return False

    def _aside(self, name: str) -> Path:
        return self.root / f"{_MAKING}-{name}"[:250]

    def settle(self, name: str) -> tuple[Place, KernelLock]:
        """Makes the directory of a new nukleus and takes its owner's lock; dead ones are removed on the way."""
        place = self.place(name)
        with self.locked():
            self.clean()
            if place.foreign():
                raise BusyError(f"{place.path} is another implementation's: choose another name, or remove it by hand")
            if place.path.exists():
                raise OwnerAlive(name, str(self.root), place.owner_pid() or 0)
            # Made aside and renamed: a directory of ours has an owner from its first moment.
            making = self._aside(name)
            lock: KernelLock | None = None
            try:
                making.mkdir(mode=0o700)
                (making / "streams").mkdir(mode=0o700)
                lock = KernelLock.acquire(making / "owner")
                lock.write(f"{os.getpid()}\n")
                making.rename(place.path)
            except OSError as error:
                if lock is not None:
                    lock.release()
                shutil.rmtree(making, ignore_errors=True)
                raise translated(error.errno or 0, str(place.path)) from None
            lock.path = place.owner
        return place, lock

    def leave(self, place: Place, lock: KernelLock) -> None:
        """Removes a nukleus's directory, and the whole config-dir with the last one."""
        with self.locked():
            if self.places() and place.path.exists():
                lock.release()
                self._remove(place)
            self.fold()

    def fold(self) -> None:
        """Removes the config-dir, under the lock, unless something is in it."""
        if {path.name for path in self.root.iterdir()} <= {".lock"}:
            with contextlib.suppress(OSError):
                (self.root / ".lock").unlink()
                self.root.rmdir()
                if self.root.parent == _users_root():
                    self.root.parent.rmdir()

    def dead(self, name: str) -> bool:
        """Whether that nukleus was one of ours and is gone; call it under the lock for a verdict that stays true."""
        place = self.place(name)
        return place.path.exists() and not place.foreign() and place.owner_pid() is None
