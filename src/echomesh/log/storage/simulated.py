"""A disk in memory that forgets what was not synced: for trying a power cut at every step of a workload."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field
from itertools import count

from typing_extensions import Buffer


class PowerCut(BaseException):
    """The power went: nothing after this call happened."""


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)


class SimulatedStorage:
    """Files in memory. After `cut_after` calls that change something, the next one raises `PowerCut` for
    good.

    `after_power_cut` gives the disk as it is found then: what was synced is there; of the rest any part may
    be, and the last write is torn at any byte.
    """

    direct = False

    def __init__(self, cut_after: int = 1 << 60, seed: int = 0) -> None:
        self.files: dict[str, _File] = {}
        self.durable_names: dict[str, _File] = {}
        self.directories: set[str] = set()
        self.handles: dict[int, tuple[_File, str]] = {}
        self.numbers = count(1000)
        self.steps = 0
        self.cut_after = cut_after
        self.random = random.Random(seed)
        self.dead = False

    def _step(self) -> None:
        if self.dead or self.steps >= self.cut_after:
            self.dead = True
            raise PowerCut(f"at step {self.steps}")
        self.steps += 1

    def after_power_cut(self) -> SimulatedStorage:
        """A fresh disk with what survived."""
        left = SimulatedStorage(seed=self.random.randrange(1 << 30))
        left.directories = set(self.directories)
        names = dict(self.durable_names)
        # A name that was not synced may or may not have made it.
        for path, file in self.files.items():
            if names.get(path) is not file and self.random.random() < 0.5:
                names[path] = file
        survivors: dict[int, _File] = {}
        for path, file in names.items():
            if id(file) not in survivors:
                content = self._survived(file)
                survivors[id(file)] = _File(bytearray(content), bytearray(content))
            left.files[path] = left.durable_names[path] = survivors[id(file)]
        return left

    def _survived(self, file: _File) -> bytearray:
        content = bytearray(file.durable)
        for number, (position, data) in enumerate(file.unsynced):
            chance = self.random.random()
            if chance < 0.4:
                continue
            torn = number == len(file.unsynced) - 1 or chance > 0.8
            part = data[: self.random.randint(0, len(data))] if torn else data
            if len(content) < position + len(part):
                content.extend(bytes(position + len(part) - len(content)))
            content[position : position + len(part)] = part
        return content

    def open(self, path: str, *, create: bool = False) -> int:
        file = self.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._step()
            file = self.files[path] = _File()
        handle = next(self.numbers)
        self.handles[handle] = (file, path)
        return handle

    def open_past_cache(self, path: str) -> int:
        return self.open(path)

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def pread(self, handle: int, size: int, position: int) -> bytes:
        return bytes(self.handles[handle][0].content[position : position + size])

    def pwrite(self, handle: int, data: Buffer, position: int) -> None:
        file = self.handles[handle][0]
        written = bytes(data)
        if not self.dead and self.steps >= self.cut_after:
            file.unsynced.append((position, written))
        self._step()
        if len(file.content) < position:
            file.content.extend(bytes(position - len(file.content)))
        file.content[position : position + len(written)] = written
        file.unsynced.append((position, written))

    def allocate(self, handle: int, size: int) -> None:
        self._step()
        content = self.handles[handle][0].content
        content.extend(bytes(max(0, size - len(content))))

    def truncate(self, handle: int, size: int) -> None:
        self._step()
        file = self.handles[handle][0]
        if size >= len(file.content):
            file.content.extend(bytes(size - len(file.content)))
            return
        # A cut may be on disk or not; what was written behind it is no longer wanted either way.
        del file.content[size:]
        file.unsynced = [(at, data[: max(0, size - at)]) for at, data in file.unsynced if at < size]

    def size(self, handle: int) -> int:
        return len(self.handles[handle][0].content)

    def fdatasync(self, handle: int) -> None:
        self._step()
        self._synced(self.handles[handle][0])

    def _synced(self, file: _File) -> None:
        file.durable = bytearray(file.content)
        file.unsynced = []

    def sync_directory(self, path: str) -> None:
        self._step()
        prefix = path.rstrip("/") + "/"
        for name in {*self.files, *self.durable_names}:
            if name.startswith(prefix) and "/" not in name[len(prefix) :]:
                self._name_synced(name)

    def _name_synced(self, name: str) -> None:
        if name in self.files:
            self.durable_names[name] = self.files[name]
        else:
            self.durable_names.pop(name, None)

    def sync_all(self, path: str) -> None:
        self._step()
        for name in {*self.files, *self.durable_names}:
            self._name_synced(name)
        for file in self.files.values():
            self._synced(file)

    def rename(self, old: str, new: str) -> None:
        self._step()
        self.files[new] = self.files.pop(old)

    def link(self, old: str, new: str) -> None:
        self._step()
        self.files[new] = self.files[old]

    def unlink(self, path: str) -> None:
        if path in self.files:
            self._step()
            del self.files[path]

    def mkdir(self, path: str) -> None:
        while path not in ("", "/"):
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def keep_no_access_times(self, path: str) -> None:
        pass  # nothing here has one

    def names(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        found = {name[len(prefix) :].partition("/")[0] for name in self.files if name.startswith(prefix)}
        found |= {name[len(prefix) :].partition("/")[0] for name in self.directories if name.startswith(prefix)}
        return sorted(found)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def stamp(self, path: str) -> tuple[int, ...] | None:
        file = self.files.get(path)
        return None if file is None else (id(file), hash(bytes(file.content)))
