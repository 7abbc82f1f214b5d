"""The catalogue: which topics a running writer has, for readers. It is made anew at each start and never
synced.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from echomesh.errors import LogDamaged

Entry = tuple[int, str, str, str]  # number, environment, name, level
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def start(path: str) -> None:
    """Begins an empty one; those who read the old one keep it."""
    with suppress(FileNotFoundError):
        Path(path).unlink()
    Path(path).touch()


def add(path: str, number: int, environment: str, name: str, level: str) -> int:
    """Adds a topic; done before the count of topics in the file of high-watermarks goes up. Where it begins."""
    entry = _encode((number, environment, name, level))
    data = len(entry).to_bytes(4, "little") + entry
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        start = os.fstat(handle).st_size
        if os.write(handle, data) != len(data):
            os.ftruncate(handle, start)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return start
    finally:
        os.close(handle)


def cut(path: str, start: int) -> None:
    """Takes back what was added last."""
    os.truncate(path, start)


def read(path: str, count: int, start: int = 0) -> tuple[list[Entry], int]:
    """Up to `count` topics from a place in the file on, and the place behind them."""
    with Path(path).open("rb") as file:
        file.seek(start)
        data = file.read()
    found: list[Entry] = []
    at = 0
    while at + 4 <= len(data) and len(found) < count:
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            break
        try:
            found.append(_decode(data[at + 4 : at + 4 + size]))
        except msgspec.MsgspecError as error:
            raise LogDamaged(path, str(error)) from None
        at += 4 + size
    return found, start + at
