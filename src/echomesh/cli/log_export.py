"""`echomesh log export`: topics as one Parquet or Arrow file, with the columns of the Spark source."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echomesh.cli.common import JsonOption, say, say_json, state
from echomesh.cli.log_common import (
    DataOption,
    EnvironmentOption,
    FromOption,
    LimitOption,
    Range,
    SinceOption,
    SkipOption,
    ToOption,
    UntilOption,
    find_topics,
    progress,
    reading,
    tell,
)
from echomesh.cli.log_facts import topic_facts
from echomesh.cli.text import amount_text, plural
from echomesh.errors import LogCorrupt, NotAnEvent, OffsetsLost, UsageError
from echomesh.log import TopicReader
from echomesh.log.reader import ENVIRONMENT

if TYPE_CHECKING:
    import pyarrow as pa


class Format(StrEnum):
    """What to write."""

    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES = {".parquet": Format.PARQUET, ".arrow": Format.ARROW, ".feather": Format.ARROW, ".ipc": Format.ARROW}


def export(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", help="Topics, or filters with * and **.", show_default=False)
    ],
    data: DataOption,
    to_file: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)
    ],
    format: Annotated[
        Format | None, typer.Option(help="Of the file; by its name when not given.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Some columns only, separated by commas.", show_default=False),
    ] = None,
    first: FromOption = None,
    to: ToOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    skip: SkipOption = False,
    environment: EnvironmentOption = ENVIRONMENT,
    as_json: JsonOption = False,
) -> None:
    """Write events to a Parquet or Arrow file. It appears under its name when it is complete."""
    state.json = as_json
    from echomesh.log import arrow

    kind = format or _SUFFIXES.get(to_file.suffix)
    if kind is None:
        raise UsageError(f"{to_file.name} does not say what to write: name it .parquet or .arrow, or give --format")
    if to_file.exists() and not force:
        raise UsageError(f"{to_file} is there already: --force replaces it")
    if not to_file.absolute().parent.is_dir():
        raise UsageError(f"there is no directory {to_file.parent} for {to_file.name}")
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    schema = arrow.schema(wanted)
    started = time.monotonic()
    part = to_file.with_name(f".{to_file.name}.part")
    rows = 0
    with reading(data) as log:
        chosen = find_topics(log, topics, environment)
        ranges = [Range(first, to, since, until, limit).of(topic) for topic in chosen]
        total = sum(_bytes(topic, end - start) for topic, (start, end) in zip(chosen, ranges, strict=True))
        try:
            with _writer(part, kind, schema) as write, progress(round(total), "exporting") as advance:
                for topic, (start, end) in zip(chosen, ranges, strict=True):
                    each = _bytes(topic, 1)
                    for batch in _batches(topic, start, end, wanted, skip):
                        write(batch)
                        rows += batch.num_rows
                        advance(round(batch.num_rows * each))
            part.replace(to_file)
        finally:
            part.unlink(missing_ok=True)
    size = to_file.stat().st_size
    if as_json:
        say_json({"file": str(to_file), "format": kind.value, "events": rows, "bytes": size})
        return
    took = f"{time.monotonic() - started:.2f} s"
    say(f"{to_file}: {plural(rows, 'event')} of {plural(len(chosen), 'topic')}, {amount_text(size)} ({took})")


def _bytes(topic: TopicReader, events: int) -> float:
    facts = topic_facts(topic)
    return facts.bytes / facts.events * events if facts.events else 0.0


def _batches(
    topic: TopicReader, start: int, end: int, columns: list[str] | None, skip: bool
) -> Iterator[pa.RecordBatch]:
    from echomesh.log import arrow

    while start < end:
        try:
            yield from arrow.batches(topic, start, end, columns=columns)
            return
        except (OffsetsLost, LogCorrupt, NotAnEvent) as gap:
            if not skip:
                raise
            tell(gap)
            start = gap.last + 1


@contextlib.contextmanager
def _writer(path: Path, kind: Format, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    if kind is Format.PARQUET:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
            yield parquet.write_batch
    else:
        import pyarrow as pa

        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as arrow:
            yield arrow.write_batch
