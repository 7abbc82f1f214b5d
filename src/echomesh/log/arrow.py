"""A topic as Arrow record batches: compiled code reads the records straight into columns.

Needs PyArrow, which the rest of the log does without: `pip install "echomesh[node]"` or `"echomesh[spark]"`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from echomesh.errors import LogBehind, LogCorrupt, LogDamaged, NotAnEvent, UsageError
from echomesh.events import Event, rules
from echomesh.native.log_columns import NAMES
from echomesh.native.log_export import export
from echomesh.native.log_scan import (
    DATACONTENTTYPE_COLUMN,
    DATASCHEMA_COLUMN,
    SOURCE_COLUMN,
    TIME_COLUMN,
    Scanner,
)

try:
    import pyarrow as pa
except ImportError as error:
    raise UsageError('Arrow and Parquet need PyArrow: pip install "echomesh[node]"') from error

if TYPE_CHECKING:
    from echomesh.log.parquet_file import ParquetSegment
    from echomesh.log.topic_reader import TopicReader
    from echomesh.native.log_record import Records

MAX_BATCH_BYTES: Final = 16 << 20  # what Spark is to be given at most
BATCH_BYTES: Final = 2 << 20  # more of it stays in the processor's cache
BATCH_ROWS: Final = 1 << 17
READ_BYTES: Final = 1 << 20
FEW_BYTES: Final = 4096  # for each event where only a few are wanted
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_TIME: Final = pa.timestamp("us", tz="UTC")
_ENTRIES: Final = pa.map_(pa.string(), pa.string())
_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(NAMES, pa.string()),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "time": _TIME,
    "data": pa.binary(),
    "attributes": _ENTRIES,
}
SCHEMA: Final = pa.schema([(name, _TYPES[name]) for name in NAMES])
"""The columns of a batch: topic, offset, timestamp (of the append), then the event's own."""


def schema(columns: Sequence[str] | None = None, never_null: Collection[str] = ()) -> pa.Schema:
    """The schema of these columns, in this order; of all of them by default."""
    if columns is None:
        columns = NAMES
    if unknown := [name for name in columns if name not in _TYPES]:
        raise UsageError(f"no columns {', '.join(map(repr, unknown))}: there are {', '.join(NAMES)}")
    if len(set(columns)) != len(columns):
        raise UsageError(f"a column is there twice: {', '.join(columns)}")
    return pa.schema([pa.field(name, _TYPES[name], name not in never_null) for name in columns])


def batches(
    topic: TopicReader,
    start: int,
    stop: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = BATCH_BYTES,
    max_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The events from the offset `start` up to but not with `stop`, by default up to the end as it is now.

    A batch has at most `max_bytes` and `max_rows`; an event larger than that comes alone. What comes before a
    gap is given first, then the reader's error (`OffsetGone`, `HoleError`, `LogCorrupt`) names it; a record
    that is no event raises `NotAnEvent`. Columns that are not asked for are neither copied nor checked.
    """
    builder = Builder(topic.name, columns, max_bytes, max_rows)
    yield from fill(topic, start, topic.end if stop is None else stop, builder)
    yield from builder.rest()


def fill(topic: TopicReader, start: int, stop: int, builder: Builder) -> Iterator[pa.RecordBatch]:
    """The batches that the events of these offsets fill, with what the builder has of other topics.

    The last ones stay in the builder; before an error they are given.
    """
    end = topic.end
    if stop > end:
        yield from builder.rest()
        raise LogBehind(topic.name, stop, end)
    builder.turn(topic.name)
    offset = start
    while offset < stop:
        try:
            if (found := topic.parquet_at(offset)) is not None:
                yield from builder.rest()
                segment, until = found
                for batch in _converted(topic, segment, offset, min(stop, until), builder):
                    yield batch
                    offset += batch.num_rows
                continue
            records = topic.read(
                offset, max_bytes=min(READ_BYTES, FEW_BYTES * (stop - offset)), max_records=stop - offset
            )
        except Exception:
            # What was read before the gap comes before the news of it.
            yield from builder.rest()
            raise
        yield from builder.add(records)
        offset = records.next_offset


def _converted(
    topic: TopicReader, segment: ParquetSegment, start: int, stop: int, builder: Builder
) -> Iterator[pa.RecordBatch]:
    scanner = builder.scanner
    try:
        for batch in segment.batches(start, stop, builder.schema.names, scanner.max_bytes, scanner.max_rows):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=builder.schema)
            start += batch.num_rows
    except LogDamaged as error:
        raise LogCorrupt(topic.name, start, segment.last_of(start), f"{segment.path}: {error.reason}") from None


def follow(
    topic: TopicReader,
    start: int,
    *,
    timeout: float | None = None,
    columns: Sequence[str] | None = None,
    max_bytes: int = BATCH_BYTES,
    max_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Batches from `start` on, and of what comes later, until nothing came for `timeout` seconds."""
    offset = start
    while True:
        for batch in batches(topic, offset, columns=columns, max_bytes=max_bytes, max_rows=max_rows):
            offset += batch.num_rows
            yield batch
        if not topic.wait(offset, timeout):
            return


class Builder:
    """Records in, record batches out."""

    def __init__(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        max_bytes: int = BATCH_BYTES,
        max_rows: int = BATCH_ROWS,
        *,
        never_null: Collection[str] = (),
    ) -> None:
        self.topic = topic
        self.schema = schema(columns, never_null)
        if max_bytes < 1 or max_rows < 1:
            raise UsageError(f"a batch of {max_bytes} bytes and {max_rows} rows holds nothing")
        self.numbers = [NAMES.index(name) for name in self.schema.names]
        self.scanner = Scanner(topic.encode(), self.numbers, max_bytes, max_rows, _judge)

    def turn(self, topic: str) -> None:
        """The records that come now are of this topic."""
        if topic != self.topic:
            self.topic = topic
            self.scanner.turn(topic.encode())

    def add(self, records: Records) -> Iterator[pa.RecordBatch]:
        """The batches that these records fill."""
        scanner, at = self.scanner, 0
        while at < len(records):
            at = scanner.add(records, at)
            if scanner.refusal is not None:
                yield from self.rest()
                raise not_an_event(self.topic, records[at][0], records[at][3], scanner.refusal)
            if at < len(records) or scanner.full:
                yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was added and not given yet."""
        if self.scanner.rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        return pa.RecordBatch._import_from_c(export(*self.scanner.take(), self.numbers), self.schema)


def not_an_event(topic: str, offset: int, data: bytes, refusal: object) -> NotAnEvent:
    """The error for this record; `Event` itself says what is wrong with it."""
    try:
        Event.decode(data)
    except ValueError as error:
        refusal = error
    return NotAnEvent(topic, offset, refusal)


def _judge(column: int, value: bytes) -> int:
    """What the compiled scanner leaves to the rules of CloudEvents: grammars, and times that are not ordinary."""
    if column == TIME_COLUMN:
        return (rules.timestamp("time", value.decode()) - _EPOCH) // _MICROSECOND
    if column == SOURCE_COLUMN:
        rules.check_source(value.decode())
    elif column == DATACONTENTTYPE_COLUMN:
        rules.check_media_type(value.decode())
    elif column == DATASCHEMA_COLUMN:
        rules.check_dataschema(value.decode())
    else:
        Event.decode(value)
    return 0


def table(record_batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None) -> pa.Table:
    """All of them as one table; with the right columns when there are none."""
    return pa.Table.from_batches(list(record_batches), schema(columns))
