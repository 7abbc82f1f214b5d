"""What the log holds when no checkpoint can be read: told by the segments, and a small file with each topic's
name.
"""

from __future__ import annotations

from typing import Final

import msgspec

from echomesh.log import state
from echomesh.log.adopted import adopted
from echomesh.log.layout import HEADER_BYTES, Paths, bases, converted, segment_name
from echomesh.log.state import State, TopicEnd
from echomesh.log.storage import Storage
from echomesh.native.log_record import encode, find_record, scan

_Name = tuple[int, str, str, str]  # number, environment, name, level
_decode: Final = msgspec.msgpack.Decoder(_Name).decode
_encode: Final = msgspec.msgpack.Encoder().encode
LOST: Final = "lost"  # where topics stand whose names are nowhere to be found


def write_name(storage: Storage, paths: Paths, number: int, environment: str, name: str, level: str) -> None:
    """Puts the topic's name beside its segments; on disk with them, before the journal lets its birth go."""
    path = paths.name(number)
    made = encode(number, 0, None, _encode((number, environment, name, level)))
    # One that is there may be that of a topic that was begun and never committed.
    if state.read_whole(storage, path) == made:
        return
    handle = storage.open(path, create=True)
    try:
        storage.truncate(handle, 0)
        storage.pwrite(handle, made, 0)
    finally:
        storage.close(handle)


def topic_of(storage: Storage, paths: Paths, number: int) -> TopicEnd:
    """The topic of this number, before its first event; under a name that says so when its own is lost."""
    data = state.read_whole(storage, paths.name(number)) or b""
    records = scan(data, 0, number, max_records=1)
    try:
        if len(records):
            found, environment, name, level = _decode(records[0][3])
            if found == number:
                return TopicEnd(number, environment, name, level)
    except msgspec.MsgspecError:
        pass
    return TopicEnd(number, "TST", f"{LOST}/{number:08d}", "disk")


def numbers(storage: Storage, paths: Paths) -> set[int]:
    """The topics that have a directory or a file with their name."""
    return {int(name[:8]) for name in storage.names(paths.topics) if name[:8].isdecimal()}


def rebuild(storage: Storage, paths: Paths, log_id: bytes) -> State | None:
    """The topics with the ends that their segments have; None when there are none."""
    there = numbers(storage, paths)
    if not there:
        return None
    topics = [topic_of(storage, paths, number) for number in range(max(there) + 1)]
    for topic in topics:
        _find_end(storage, paths.topic(topic.number, topic.level, log_id), topic)
    return State(log_id, topics=topics, rebuilt=True)


def _find_end(storage: Storage, directory: str, topic: TopicEnd) -> None:
    names = storage.names(directory)
    found, stages = bases(names), adopted(directory, names)
    topic.earliest = min([*found, *converted(names), *stages], default=0)
    last = stages[max(stages)] if stages else None
    if last is not None and (not found or found[-1] <= last.base):
        topic.base = topic.next_offset = last.end
        topic.last_time = last.time_ns
        return
    if not found:
        topic.earliest = 0
        return
    topic.base, topic.position, topic.next_offset = found[-1], HEADER_BYTES, found[-1]
    handle = storage.open(f"{directory}/{segment_name(topic.base)}")
    try:
        data = storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)
    at = HEADER_BYTES
    while at >= 0:
        records = scan(data, at, topic.next_offset)
        if len(records):
            topic.position, topic.next_offset = records.next_position, records.next_offset
            topic.last_time = records.time_ns(len(records) - 1)
        # Behind a damaged record others may stand; readers are told of the damage when they get there.
        at, following = find_record(data, max(records.next_position, at), topic.next_offset - 1)
        topic.next_offset = max(topic.next_offset, following)
