"""Logs whose segments become Parquet files, for the tests of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from echomesh.log import LogReader, TopicLog
from echomesh.log.parquet import compact
from echomesh.log.parquet_file import ParquetSegment
from echomesh.log.storage import Storage
from echomesh.log.topic_reader import TopicReader
from echomesh.native.log_record import Records, encode, scan
from tests.log.arrow_support import TIME_NS, packed
from tests.log.support import small

LOG_ID = bytes(range(16))


def records_of(events: list[bytes], first: int = 7) -> Records:
    """Records with odd times and some origins."""
    made = [
        encode(first + i, TIME_NS + 1003 * i, bytes([i % 256]) * 24 if i % 3 == 1 else None, event)
        for i, event in enumerate(events)
    ]
    return scan(b"".join(made), 0, first)


def opened(data: bytes) -> ParquetSegment:
    return ParquetSegment(lambda at, size: data[at : at + size], len(data), "file")


def event(i: int) -> bytes:
    return packed(id=str(i), data=b"%d" % i * 10, n=i, time=datetime(2020, 1, 1, tzinfo=UTC).isoformat())


def fill(directory: Path, number: int = 100, storage: Storage | None = None, **options: Any) -> None:
    with TopicLog(directory, small(storage, **options)) as log:
        for i in range(0, number, 10):
            log.append_many("a", [event(k) for k in range(i, i + 10)])


def everything(topic: TopicReader) -> list[tuple[int, int, bytes | None, bytes]]:
    found = []
    offset = topic.earliest
    while offset < topic.end:
        records = topic.read(offset, max_bytes=500)
        found += records.tuples()
        offset = records.next_offset
    return found


def seen(directory: Path, storage: Storage | None = None) -> list[tuple[int, int, bytes | None, bytes]]:
    with LogReader(directory, storage=storage) as reader:
        return everything(reader.topic("a"))


def compacted(directory: Path, storage: Storage | None = None, **options: Any) -> Any:
    with LogReader(directory, storage=storage) as reader:
        return compact(reader.topic("a"), min_age_s=options.pop("min_age_s", 0), **options)


def files(directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in (directory / "topics").rglob(f"*.{suffix}"))
