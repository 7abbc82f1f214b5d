"""A sealed segment as a Parquet file: the columns of the Arrow batches, and what makes the stored bytes again.

Every byte that is read is checked first: each column of each row group has its CRC32C in the footer, and the
footer its own.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from echomesh.errors import LogDamaged
from echomesh.log.arrow import SCHEMA, Builder  # its import of PyArrow says what to install
from echomesh.log.index import Mark
from echomesh.log.layout import HEADER_BYTES
from echomesh.log.storage import Storage
from echomesh.native.log_blocks import Block
from echomesh.native.log_rebuild import Rebuilder
from echomesh.native.log_record import Records, scan
from echomesh.native.log_sums import crc32c
from echomesh.native.log_wire import describe_records

import pyarrow as pa  # isort: skip
import pyarrow.parquet as pq  # isort: skip


class Source(Protocol):
    """Whoever has a log's files: a reader, or the writer."""

    storage: Storage
    log_id: bytes


VERSION: Final = 1
GROUP_BYTES: Final = 4 << 20
GROUP_ROWS: Final = 1 << 16
ZSTD_LEVEL: Final = 3
_KEY: Final = "echomesh"
_SUMS_KEY: Final = "echomesh.sums"
_MARK: Final = b"CRC32C:"
_TAIL: Final = 8  # length of the footer, and the magic bytes
_MAGIC: Final = b"PAR1"
EXTRA: Final = [pa.field("wire", pa.binary()), pa.field("nanos", pa.int32()), pa.field("origin", pa.binary(24))]
FILE_SCHEMA: Final = pa.schema([*SCHEMA, *EXTRA])
# Where values come again; ids and data rarely do, and a dictionary of them is built for nothing.
_REPEATED: Final = ["topic", "source", "type", "datacontenttype", "dataschema", "wire", "subject"]

Read = Callable[[int, int], bytes]  # position and size to bytes
Sums = list[list[str]]


class Group(msgspec.Struct, array_like=True):
    """A row group: its records from the offset `first` on, `size` bytes of them with their CRC32C."""

    first: int
    rows: int
    first_time_ns: int
    last_time_ns: int
    size: int
    sum: int


class Facts(msgspec.Struct):
    """What the footer says beside the columns."""

    version: int
    log_id: str
    topic: int
    name: str
    first: int
    end: int
    groups: list[Group]


def build(
    records: Records, name: str, log_id: bytes, number: int, stopping: Callable[[], bool] = lambda: False
) -> bytes | None:
    """The file for these records, a whole segment.

    None when one of them can't be made again from columns, or `stopping` says so.
    """
    groups: list[Group] = []
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, FILE_SCHEMA, compression="zstd", compression_level=ZSTD_LEVEL, use_dictionary=_REPEATED,  # type: ignore[arg-type]  # a list is documented
        write_statistics=["offset", "timestamp", "time"], store_schema=False, version="2.6",
    ) as writer:  # fmt: skip
        for at, batch in _row_groups(records, name):
            extra = _extra(records, at, at + batch.num_rows)
            if extra is None or stopping():
                return None
            writer.write_batch(
                pa.RecordBatch.from_arrays([*batch.columns, *extra], schema=FILE_SCHEMA), row_group_size=batch.num_rows
            )
            groups.append(_group(records, at, batch.num_rows))
        facts = Facts(VERSION, log_id.hex(), number, name, records.first, records.next_offset, groups)
        leaves = len(FILE_SCHEMA) + 1  # `attributes` is two columns
        writer.add_key_value_metadata({_KEY: msgspec.json.encode(facts).decode()})
        writer.add_key_value_metadata({_SUMS_KEY: _MARK.decode() + "0" * 8 * (len(groups) * leaves + 1)})
    return _seal(bytearray(sink.getvalue()))


def _row_groups(records: Records, name: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    builder = Builder(name, max_bytes=GROUP_BYTES, max_rows=GROUP_ROWS)
    at = 0
    for part in (builder.add(records), builder.rest()):
        for batch in part:
            yield at, batch
            at += batch.num_rows


def _group(records: Records, at: int, rows: int) -> Group:
    raw = records.raw()
    start = records.position(at) - records.position(0)
    stop = records.position(at + rows) - records.position(0) if at + rows < len(records) else len(raw)
    return Group(
        records.first + at, rows, records.time_ns(at), records.time_ns(at + rows - 1),
        stop - start, crc32c(raw[start:stop]),
    )  # fmt: skip


def _extra(records: Records, start: int, stop: int) -> list[pa.Array[Any]] | None:
    found = describe_records(records, start, stop)
    if found is None:
        return None
    (ends, data), nanos, (valid, origins) = found
    rows = stop - start
    return [
        pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)]),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(nanos)]),
        pa.Array.from_buffers(pa.binary(24), rows, [pa.py_buffer(valid), pa.py_buffer(origins)]),
    ]


def _seal(data: bytearray) -> bytes:
    # Puts the sums into the place that was kept for them.
    metadata = pq.read_metadata(pa.BufferReader(data))
    sums = [
        f"{crc32c(memoryview(data)[start : start + size]):08x}"
        for group in range(metadata.num_row_groups)
        for start, size in _chunks(metadata, group)
    ]
    at = data.rindex(_MARK) + len(_MARK)
    data[at : at + 8 * len(sums)] = "".join(sums).encode()
    footer = len(data) - _TAIL - int.from_bytes(data[-_TAIL:-4], "little")
    at += 8 * len(sums)
    data[at : at + 8] = f"{crc32c(memoryview(data)[footer:]):08x}".encode()
    return bytes(data)


def _chunks(metadata: pq.FileMetaData, group: int) -> list[tuple[int, int]]:
    # (position, size) of each column's bytes in the row group
    found = []
    for number in range(metadata.num_columns):
        column = metadata.row_group(group).column(number)
        start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        found.append((start or column.data_page_offset, column.total_compressed_size))
    return found


class _Checked(io.RawIOBase):
    """What PyArrow reads from: the bytes that were checked, and nothing else."""

    def __init__(self, size: int) -> None:
        self.length = size
        self.position = 0
        self.parts: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + (0, self.position, self.length)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def read(self, size: int | None = -1) -> bytes:
        wanted = self.length - self.position if size is None or size < 0 else size
        for start, part in self.parts.items():
            if start <= self.position < start + len(part):
                found = part[self.position - start : self.position - start + wanted]
                self.position += len(found)
                return found
        return b""


class ParquetSegment:
    """Reads a converted segment; `LogDamaged` for bytes that are not what was written."""

    def __init__(self, read: Read, size: int, path: str) -> None:
        self.read_bytes = read
        self.path = path
        self.file = _Checked(size)
        self.facts, self.sums, self.metadata = self._open(size)
        self.cached: tuple[int, Block, Records] | None = None
        try:
            self.parquet = pq.ParquetFile(pa.PythonFile(self.file, mode="r"), metadata=self.metadata, pre_buffer=False)
            if self.parquet.schema_arrow.names != FILE_SCHEMA.names:
                raise LogDamaged(path, f"it has other columns: {', '.join(self.parquet.schema_arrow.names)}")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LogDamaged(path, str(error)) from None

    def _open(self, size: int) -> tuple[Facts, Sums, pq.FileMetaData]:
        tail = self.read_bytes(max(0, size - _TAIL), _TAIL)
        length = int.from_bytes(tail[:4], "little") + _TAIL
        if size < _TAIL + 4 or tail[4:] != _MAGIC or length > size - 4:
            raise LogDamaged(self.path, "it is no whole Parquet file")
        footer = bytearray(self.read_bytes(size - length, length))
        at = footer.rfind(_MARK) + len(_MARK)
        if at < len(_MARK) or len(footer) != length:
            raise LogDamaged(self.path, "its footer has no sums")
        try:
            digits = 0
            while footer[at + digits] in b"0123456789abcdef":
                digits += 1
            digits -= digits % 8 + 8
            wanted = bytes(footer[at + digits : at + digits + 8])
            footer[at + digits : at + digits + 8] = b"0" * 8
            if digits < 0 or f"{crc32c(footer):08x}".encode() != wanted:
                raise LogDamaged(self.path, "its footer is damaged")
            # The footer alone will do: it is found from the end.
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
            facts = msgspec.json.decode((metadata.metadata or {})[_KEY.encode()], type=Facts)
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            raise LogDamaged(self.path, f"its footer can't be read: {error}") from None
        sums = footer[at : at + digits].decode()
        each = 8 * metadata.num_columns
        if (
            facts.version != VERSION
            or len(sums) != each * len(facts.groups)
            or metadata.num_row_groups != len(facts.groups)
        ):
            raise LogDamaged(self.path, "its footer does not fit together")
        lines = [sums[i : i + each] for i in range(0, len(sums), each)]
        return facts, [[line[i : i + 8] for i in range(0, each, 8)] for line in lines], metadata

    def group_of(self, offset: int) -> int:
        """The row group that has this offset."""
        return max(i for i, group in enumerate(self.facts.groups) if group.first <= offset)

    def last_of(self, offset: int) -> int:
        """The last offset that is in one row group with this one."""
        group = self.facts.groups[self.group_of(offset)]
        return group.first + group.rows - 1

    def table(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a row group, each of them checked."""
        names = [name.partition(".")[0] for name in self._leaves()]
        parts: dict[int, bytes] = {}
        for i, (start, size) in enumerate(_chunks(self.metadata, number)):
            if names[i] in columns:
                part = self.read_bytes(start, size)
                if f"{crc32c(part):08x}" != self.sums[number][i]:
                    raise LogDamaged(self.path, f"column {names[i]} of row group {number} is damaged")
                parts[start] = part
        self.file.parts = parts
        try:
            found = self.parquet.read_row_group(number, columns=list(columns), use_threads=False)
            found = found.select(list(columns)).cast(pa.schema([FILE_SCHEMA.field(name) for name in columns]))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise LogDamaged(self.path, f"row group {number}: {error}") from None
        finally:
            self.file.parts = {}
        if found.num_rows != self.facts.groups[number].rows:
            raise LogDamaged(self.path, f"row group {number} has {found.num_rows} rows")
        return found

    def _leaves(self) -> list[str]:
        return [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]

    def records(self, number: int) -> tuple[Block, Records]:
        """The records of a row group, byte for byte as they stood in the segment."""
        if self.cached is not None and self.cached[0] == number:
            return self.cached[1:]
        group = self.facts.groups[number]
        found = self.table(number, [name for name in FILE_SCHEMA.names if name not in ("topic", "offset")])
        try:
            block = Rebuilder(group.rows, _columns(found)).records(group.first)
        except ValueError as error:
            raise LogDamaged(self.path, f"row group {number}: {error}") from None
        if block is None or len(block) != group.size or crc32c(block) != group.sum:
            raise LogDamaged(self.path, f"row group {number} does not give the bytes that were stored")
        self.cached = (number, block, scan(block, 0, group.first))
        return self.cached[1:]

    def read(self, offset: int, max_bytes: int, max_records: int) -> Records:
        """Records from this offset on, at least one, as a segment's reader gives them."""
        block, whole = self.records(self.group_of(offset))
        start = whole.position(offset - whole.first)
        found = scan(memoryview(block)[: start + max_bytes], start, offset, whole.next_offset, max_records)
        return found if len(found) else scan(block, start, offset, whole.next_offset, 1)

    def first_at(self, time_ns: int) -> int:
        """An offset before which everything is older than this, by the row groups' times."""
        return next((group.first for group in self.facts.groups if group.last_time_ns >= time_ns), self.facts.end)

    def marks(self) -> list[Mark]:
        """Entries for the segment's index: one for each row group, where it stood."""
        found, position = [], HEADER_BYTES
        for group in self.facts.groups:
            found.append(Mark(group.first, group.first_time_ns, position))
            position += group.size
        return found

    def batches(
        self, start: int, stop: int, columns: Sequence[str], max_bytes: int, max_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of these offsets."""
        while start < stop:
            number = self.group_of(start)
            group = self.facts.groups[number]
            until = min(stop, group.first + group.rows)
            # Without any column there would be no rows either.
            found = self.table(number, columns or ["offset"]).select(list(columns))
            for batch in found.slice(start - group.first, until - start).combine_chunks().to_batches():
                yield from _limited(batch, max_bytes, max_rows)
            start = until


def open_segment(log: Source, path: str, number: int, base: int) -> ParquetSegment:
    """The converted segment in this file; `LogDamaged` when it is not the one of this topic and offset."""
    handle = log.storage.open(path)
    try:
        size = log.storage.size(handle)
        found = ParquetSegment(lambda at, size: log.storage.pread(handle, size, at), size, path)
    except BaseException:
        log.storage.close(handle)
        raise
    weakref.finalize(found, log.storage.close, handle)
    if (found.facts.log_id, found.facts.topic, found.facts.first) != (log.log_id.hex(), number, base):
        raise LogDamaged(path, "it belongs to another topic or place")
    return found


def _limited(batch: pa.RecordBatch, max_bytes: int, max_rows: int) -> Iterator[pa.RecordBatch]:
    at = 0
    while at < batch.num_rows:
        rows = min(max_rows, batch.num_rows - at)
        while rows > 1 and (size := batch.slice(at, rows).nbytes) > max_bytes:
            rows = max(1, min(rows - 1, rows * max_bytes // size))
        yield batch.slice(at, rows)
        at += rows


def _views(array: pa.Array[Any]) -> list[memoryview | None]:
    return [None if buffer is None else memoryview(buffer).cast("B") for buffer in array.buffers()]


def _text(array: pa.Array[Any]) -> tuple[memoryview | bytes, memoryview | None]:
    _, ends, data = _views(array)
    return ends or bytes(4), data  # an empty array may have none


def _columns(found: pa.Table) -> dict[str, Any]:
    """The buffers of each column, in the way that `Rebuilder` takes them."""
    made: dict[str, Any] = {}
    for name in found.column_names:
        chunks: list[Any] = found.column(name).chunks
        # Joined, so that it begins at the beginning of its buffers.
        array: Any = chunks[0] if len(chunks) == 1 and not chunks[0].offset else pa.concat_arrays(chunks)
        buffers = _views(array)
        if name == "attributes":
            made[name] = (None, buffers[1], None)
            made["names"] = (None, *_text(array.keys))
            made["values"] = (None, *_text(array.items))
        elif len(buffers) == 2:
            made[name] = (buffers[0], None, buffers[1])
        else:
            made[name] = tuple(buffers)
    return made
