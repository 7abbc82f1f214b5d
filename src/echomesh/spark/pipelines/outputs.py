"""Where the rows of a pipeline go: topics, tables, dead letters, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from echomesh.errors import UsageError
from echomesh.spark.formats import FORMATS, Format
from echomesh.topics import parse_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD: Final = "dead"


@dataclass(frozen=True)
class Topic:
    """Rows become events of a topic, each exactly once. Without a name each row has its own, in the column `topic`."""

    name: str | None = None
    type: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        return f"topic {self.name}" if self.name else "topics of the rows"


@dataclass(frozen=True)
class Table:
    """Rows go into a table, each exactly once."""

    name: str
    format: Format = "delta"
    partition_by: tuple[str, ...] = ("date",)
    sort_by: tuple[str, ...] = ("topic", "offset")

    def __str__(self) -> str:
        return f"{self.format} table {self.name}"


@dataclass(frozen=True)
class Dead:
    """Rows that `parse_json` could not read become events of `dead/<topic>`, with the reason among their attributes."""

    prefix: str = DEAD

    def __str__(self) -> str:
        return f"topics {self.prefix}/**"


class OpenedTable(Protocol):
    """What `open_table` gives: a write is done once for each writer and epoch."""

    def write(self, rows: DataFrame, writer: str, epoch: int) -> Any:
        """Writes the rows, unless this epoch of the writer is in the table already."""

    def read(self, spark: SparkSession) -> DataFrame:
        """What is in the table now."""

    @property
    def exists(self) -> bool:
        """Whether something has been written yet."""


@dataclass(frozen=True)
class Batch:
    """Which batch it is: the same `writer` and `epoch` come again when a batch is done again."""

    writer: str
    epoch: int
    open: Callable[[Table], OpenedTable]
    publish: Callable[[DataFrame, Topic], None]  # once, however often the batch is done; one call for all its topics


@dataclass(frozen=True)
class Batches:
    """Each batch is given to a function, which has to do it once for each `writer` and `epoch` of the `Batch`."""

    write: Callable[[DataFrame, Batch], None]
    says: str = "a function"
    tables: tuple[Table, ...] = ()  # those it writes, so that a cluster is not given a path that it can't see
    topics: tuple[Topic, ...] = ()  # and those it publishes to

    def __str__(self) -> str:
        return self.says


Output: TypeAlias = Topic | Table | Dead | Batches
Outputs: TypeAlias = Output | Mapping[str, Output]


def publishes(output: Output) -> bool:
    """Whether it makes events of rows."""
    return isinstance(output, Topic | Dead) or (isinstance(output, Batches) and bool(output.topics))


def topic(name: str | None = None, *, type: str | None = None, source: str | None = None) -> Topic:
    """Output to a topic, exactly once. Rows with a column `data` are events as they are, others become JSON.

    Without a name each row goes to the topic of its column `topic`. `type` and `source` are those of the events,
    when the rows do not say: the name of the pipeline, and `/pipelines/<name>`.
    """
    return Topic(None if name is None else parse_topic(name), type, source)


def table(
    name: str,
    *,
    format: Format = "delta",
    partition_by: Sequence[str] = ("date",),
    sort_by: Sequence[str] = ("topic", "offset"),
) -> Table:
    """Output to a table, exactly once: a name below the directory of tables, or a path.

    Columns of `partition_by` and `sort_by` that the rows do not have are left out; `date` is that of `timestamp`.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"a table needs a name or a path, not {name!r}")
    if format not in FORMATS:
        raise UsageError(f"a table has no format {format!r}: there are {', '.join(FORMATS)}")
    return Table(name, format, _columns("partition_by", partition_by), _columns("sort_by", sort_by))


def dead_letters(prefix: str = DEAD) -> Dead:
    """Output of what could not be read: `dead/<topic>`, from where `echomesh pipeline retry-dead` takes it."""
    return Dead(parse_topic(prefix))


def batches(
    write: Callable[[DataFrame, Batch], None],
    says: str = "a function",
    tables: Sequence[Table] = (),
    topics: Sequence[Topic] = (),
) -> Batches:
    """Output to a function of each batch; it has to be done once for each `batch.writer` and `batch.epoch`."""
    return Batches(write, says, tuple(tables), tuple(topics))


def _columns(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise UsageError(f"{what} is a list of columns, not {names!r}")
    return tuple(names)
