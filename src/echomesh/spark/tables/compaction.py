"""Small files into one large one, sorted. It takes no Spark, and memory for one file only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from echomesh.spark.tables.staging import DataFile

TARGET_BYTES: Final = 128 << 20
_MEMORY_BYTES: Final = 512 << 20  # of rows as they are, uncompressed


@dataclass(frozen=True)
class Compacted:
    """How many files were replaced by how many, and the rows and bytes of the new ones."""

    before: int = 0
    after: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.before + other.before, self.after + other.after, self.rows + other.rows, self.bytes + other.bytes
        )


def bins(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Files of one partition that together make one of about the size that is wanted."""
    partitions: dict[Path, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.bytes < target_bytes // 2:
            partitions[file.home].append(file)
    for small in partitions.values():
        group: list[DataFile] = []
        size = memory = 0
        for file in sorted(small, key=lambda one: one.path.stat().st_mtime_ns):
            unpacked = _unpacked(file.footer)
            if group and (size + file.bytes > target_bytes or memory + unpacked > _MEMORY_BYTES):
                if len(group) > 1:
                    yield group
                group, size, memory = [], 0, 0
            group.append(file)
            size, memory = size + file.bytes, memory + unpacked
        if len(group) > 1:
            yield group


def _unpacked(footer: pq.FileMetaData) -> int:
    return sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))


def merged(files: Sequence[DataFile], place: Path, schema: StructType, sort_by: Sequence[str]) -> DataFile:
    """One file with the rows of all of these, in `place`."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    # partitioning: what directories say is no column of a file
    rows = pa.concat_tables(pq.read_table(file.path, schema=wanted, partitioning=None) for file in files)
    if keys := [name for name in sort_by if name in schema.names]:
        rows = rows.sort_by([(name, "ascending") for name in keys])
    place.mkdir()
    path = place / "merged.parquet"
    pq.write_table(rows, path, compression="zstd", row_group_size=1 << 20)
    footer = pq.read_metadata(path)
    return DataFile(path, files[0].home, footer.num_rows, path.stat().st_size, footer)
