"""How Spark reaches a log: a `Reach` in the driver, which tasks follow by the `Way` that they carry.

There are two: `local` reads a data directory where it lies, `remote` asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from echomesh.log.arrow import Builder
    from echomesh.spark.places import Places


class Range(NamedTuple):
    """Offsets of one topic, from `start` up to but not with `until`."""

    topic: str
    start: int
    until: int


class Way(Protocol):
    """What a task carries: small, picklable, and with nothing secret in its `repr`."""

    def scan(self, topic: str, start: int, until: int, builder: Builder) -> Iterator[pa.RecordBatch]:
        """The batches that the events of these offsets fill; what fills none stays in the builder.

        So a batch may have events of many topics. What comes before a gap is given first, up to the last row. Then
        `OffsetGone`, `HoleError`, `LogCorrupt` or `NotAnEvent` name it, and a new scan behind their `last` goes on.
        `UnknownTopic` and `LogBehind` say that the log was made anew.
        """

    def for_jvm(self) -> tuple[object, ...] | None:
        """What Server.java knows of a server that is asked inside the JVM; None where files are read."""


class Reach(Protocol):
    """What the driver asks, of the topics of one environment. Made by the options of a query."""

    log_id: str

    def bounds(self, filters: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The first offset that is kept and the end of each topic that matches one of these filters, by name.

        All of one moment: what one commit of stages wrote to several topics is in all of them or in none.
        """

    def at_time(self, topics: Sequence[str], time_us: int) -> dict[str, int]:
        """The offset of the first event that was appended at this time or later; the end when there is none."""

    def sizes(self, ranges: Sequence[Range]) -> list[int]:
        """About how many bytes each of these has; for packing, so a guess will do."""

    def way(self) -> Way:
        """What tasks carry; asked for anew for each batch."""

    def places(self, ranges: Sequence[Range]) -> Places:
        """Where the events of a task's ranges stand, in order."""

    def close(self) -> None:
        """Lets go of files and connections."""


Bounds = Mapping[str, tuple[int, int]]
