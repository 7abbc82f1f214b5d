"""What the log knows of its topics and transactional writers; kept in the checkpoint, carried on by the
journal's notes.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

import msgspec

from echomesh.errors import LogDamaged
from echomesh.log.layout import Paths
from echomesh.log.storage import Storage
from echomesh.native.log_sums import crc32c

MAGIC: Final = b"EMCHECK\x01"
_HEAD: Final = struct.Struct("<8sII")
RUN_BYTES: Final = 16  # of a run that was replaced only this much of a hash is kept: for good, and for all of them


class TopicEnd(msgspec.Struct, array_like=True):
    """A topic and where it ends."""

    number: int
    environment: str
    name: str
    level: str
    base: int = 0
    position: int = 0
    next_offset: int = 0
    last_time: int = -1
    lease: int = 0
    earliest: int = 0


class WriterState(msgspec.Struct, array_like=True):
    """What is kept of a transactional writer for good."""

    epoch: int
    run: str
    rows: int
    offsets: dict[str, tuple[int, int]]
    old_runs: bytes = b""  # hashes, one behind the other

    def replaced(self, run: str) -> bool:
        """Whether a newer run than this one has committed."""
        wanted = hash_of(run)
        at = self.old_runs.find(wanted)
        while at >= 0 and at % RUN_BYTES:
            at = self.old_runs.find(wanted, at + 1)
        return at >= 0


class State(msgspec.Struct, array_like=True):
    """The content of a checkpoint: everything up to the frame `number` is in synced segments."""

    log_id: bytes
    number: int = 0
    sequence: int = 0
    clean: bool = False
    topics: list[TopicEnd] = msgspec.field(default_factory=list)
    writers: dict[str, WriterState] = msgspec.field(default_factory=dict)
    rebuilt: bool = False  # from segments, since no checkpoint was there


class TopicNote(msgspec.Struct, array_like=True, tag="topic"):
    """A topic is born."""

    number: int
    environment: str
    name: str
    level: str


class LeaseNote(msgspec.Struct, array_like=True, tag="lease"):
    """Offsets below `upto` may have been given out without being journaled."""

    number: int
    upto: int


class Run(msgspec.Struct, array_like=True):
    """Records of a staged commit that stand one behind the other in a segment; with `stage`, that is the segment."""

    base: int
    position: int
    first: int
    count: int
    bytes: int
    stage: str = ""

    @property
    def end(self) -> tuple[int, int]:
        """The segment and the position where the topic goes on behind them."""
        return (self.first + self.count, 0) if self.stage else (self.base, self.position + self.bytes)


class Share(msgspec.Struct, array_like=True):
    """What a staged commit gives to one topic."""

    number: int
    first: int
    count: int
    runs: list[Run]


class CommitNote(msgspec.Struct, array_like=True, tag="commit"):
    """The winning stages of an epoch are part of their topics from here on."""

    writer: str
    epoch: int
    run: str
    rows: int
    time_ns: int
    stages: list[str]
    shares: list[Share]
    older_runs: list[str] = msgspec.field(default_factory=list)  # that began before this one, and never committed


Note = TopicNote | LeaseNote | CommitNote
encode_note: Final = msgspec.msgpack.Encoder().encode
decode_note: Final = msgspec.msgpack.Decoder(Note).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(State).decode


def hash_of(run: str) -> bytes:
    """What is kept of a run that was replaced."""
    return blake2b(run.encode(), digest_size=RUN_BYTES).digest()


def remember(writers: dict[str, WriterState], note: CommitNote) -> None:
    """Keeps a writer's last epoch, run and answer, and which runs may not commit any more."""
    offsets = {str(share.number): (share.first, share.count) for share in note.shares}
    before = writers.get(note.writer)
    made = WriterState(note.epoch, note.run, note.rows, offsets, before.old_runs if before else b"")
    if before and before.run != note.run:
        made.old_runs += hash_of(before.run)
    for run in note.older_runs:
        if not made.replaced(run):
            made.old_runs += hash_of(run)
    writers[note.writer] = made


def pack(state: State) -> bytes:
    """The bytes of a checkpoint."""
    body = _encode(state)
    return _HEAD.pack(MAGIC, len(body), crc32c(body)) + body


def unpack(data: bytes, path: str) -> State:
    """The state in these bytes, or `LogDamaged`."""
    if len(data) < _HEAD.size:
        raise LogDamaged(path, "too short for a checkpoint")
    magic, size, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + size]
    if magic != MAGIC or len(body) != size or crc32c(body) != crc:
        raise LogDamaged(path, "not a whole checkpoint of this version")
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise LogDamaged(path, str(error)) from None


def load(storage: Storage, path: str) -> State | None:
    """The checkpoint, None when there is none, or `LogDamaged`."""
    data = read_whole(storage, path)
    return None if data is None else unpack(data, path)


def save(storage: Storage, paths: Paths, state: State) -> None:
    """Replaces the checkpoint and its copy, each in one step; on disk afterwards."""
    data = pack(state)
    write_whole(storage, paths.checkpoint, data)
    write_whole(storage, paths.checkpoint_copy, data)


def read_whole(storage: Storage, path: str) -> bytes | None:
    """A file's content; None when there is none."""
    if not storage.exists(path):
        return None
    handle = storage.open(path)
    try:
        return storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)


def write_whole(storage: Storage, path: str, data: bytes) -> None:
    """Replaces a file in one step; on disk afterwards."""
    storage.unlink(path + ".new")
    handle = storage.open(path + ".new", create=True)
    try:
        storage.pwrite(handle, data, 0)
        storage.fdatasync(handle)
    finally:
        storage.close(handle)
    storage.rename(path + ".new", path)
    storage.sync_directory(path.rpartition("/")[0])
