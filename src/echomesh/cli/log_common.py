"""What the commands of `echomesh log` share: options, the log in a directory, ranges of a topic, progress."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from echomesh.cli.common import warn
from echomesh.errors import (
    EchomeshError,
    FileGone,
    LogBehind,
    LogCorrupt,
    OffsetsLost,
    StorageError,
    UnknownTopic,
)
from echomesh.log import LogReader, Records, TopicReader
from echomesh.log.reader import ENVIRONMENT
from echomesh.topics import matches, parse_filter

DataOption = Annotated[
    Path,
    typer.Option("--data", envvar="ECHOMESH_DATA", metavar="DIR", help="The data directory.", show_default=False),
]
EnvironmentOption = Annotated[
    str, typer.Option("--environment", "-e", envvar="ECHOMESH_ENVIRONMENT", metavar="NAME", help="Of the topics.")
]
AnyEnvironmentOption = Annotated[
    str | None,
    typer.Option("--environment", "-e", metavar="NAME", help="Of the topics; all when not given.", show_default=False),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]
FiltersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Topics, or filters with * and **; all when not given."),
]
SkipOption = Annotated[bool, typer.Option("--skip", help="Go on behind lost and corrupt offsets, and name them.")]

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def duration(text: str) -> float:
    """Seconds of 90s, 15m, 2h or 7d."""
    if (found := _AGO.fullmatch(text)) is None:
        raise typer.BadParameter(f"{text!r} is no time span: 90s, 15m, 2h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def moment(text: str) -> int:
    """Nanoseconds since 1970 of a time: RFC 3339, local without a zone, or so long ago (90s, 15m, 2h, 7d)."""
    if _AGO.fullmatch(text) is not None:
        return time.time_ns() - round(duration(text) * 1e9)
    try:
        found = datetime.fromisoformat(text).astimezone(UTC)
        return round(found.replace(microsecond=0).timestamp()) * 1_000_000_000 + found.microsecond * 1000
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text!r} is no time: 2026-07-01T12:00:00Z, or 15m for 15 minutes ago") from None


FromOption = Annotated[
    int | None, typer.Option("--from", metavar="OFFSET", help="The first; -10: the last ten.", show_default=False)
]
ToOption = Annotated[
    int | None, typer.Option("--to", metavar="OFFSET", help="Up to this one, not with it.", show_default=False)
]
SinceOption = Annotated[
    int | None,
    typer.Option(parser=moment, metavar="TIME", help="Appended then or later: a time, or 15m ago.", show_default=False),
]
UntilOption = Annotated[
    int | None, typer.Option(parser=moment, metavar="TIME", help="Appended before that.", show_default=False)
]
LimitOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="Not more than so many.", show_default=False)]


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """What the file system refuses becomes a sentence, as every other error."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has seen enough
    except OSError as error:
        if isinstance(error, EchomeshError):
            raise
        raise StorageError(f"{error.filename or 'the data directory'}: {error.strerror or error}") from error


@contextlib.contextmanager
def reading(data: Path) -> Iterator[LogReader]:
    """The log in this directory, to be read; a writer is not disturbed."""
    with disk_errors():
        try:
            log = LogReader(data)
        except FileGone:
            raise FileGone(f"there is no log in {data}: check --data, or append something") from None
        with log:
            yield log


def find_topic(log: LogReader, name: str, environment: str) -> TopicReader:
    """The topic; the error for an unknown one names those there are."""
    try:
        return log.topic(name, environment=environment)
    except UnknownTopic as error:
        elsewhere = [topic.environment for topic in log.topics() if topic.name == error.topic]
        known = sorted(topic.name for topic in log.topics() if topic.environment == environment)
        hint = (
            f"it is in {', '.join(elsewhere)} (--environment)"
            if elsewhere
            else f"there is {', '.join(known[:5])}{' ...' if len(known) > 5 else ''}"
            if known
            else "there is none at all"
        )
        error.args = (f"{error.args[0]}: {hint}",)
        raise


def find_topics(log: LogReader, filters: list[str] | None, environment: str | None) -> list[TopicReader]:
    """The topics that match one of the filters, in order; a filter that matches none is an error."""
    wanted = [parse_filter(name) for name in filters or ["**"]]
    there = sorted(
        (name for name in log.topics() if environment in (None, name.environment)),
        key=lambda name: (name.environment, name.name),
    )
    for name in wanted if filters else []:
        if not any(matches(name, topic.name) for topic in there):
            if "*" not in name:
                find_topic(log, name, environment or ENVIRONMENT)
            raise UnknownTopic(name, environment or "any")
    return [TopicReader(log, name) for name in there if any(matches(each, name.name) for each in wanted)]


@dataclass(frozen=True)
class Range:
    """What the options say of the part of a topic that is wanted."""

    first: int | None = None
    to: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    limit: int | None = None

    def of(self, topic: TopicReader) -> tuple[int, int]:
        """The first offset, and the one behind the last."""
        earliest, end = topic.earliest, topic.end
        first = earliest if self.first is None else self.first
        if first < 0:
            first = max(earliest, end + first)
        if first > end:
            raise LogBehind(topic.name, first, end)
        if self.since_ns is not None:
            first = max(first, topic.offset_at(self.since_ns))
        last = end if self.to is None else min(end, self.to if self.to >= 0 else end + self.to)
        if self.until_ns is not None:
            last = min(last, topic.offset_at(self.until_ns))
        if self.limit is not None:
            last = min(last, first + self.limit)
        return first, max(first, last)


Gap = OffsetsLost | LogCorrupt


def batches(topic: TopicReader, first: int, end: int, on_gap: Callable[[Gap], None] | None = None) -> Iterator[Records]:
    """The records of these offsets. What can't be had is an error, or is told to `on_gap` and left out."""
    while first < end:
        try:
            records = topic.read(first, max_records=end - first)
        except (OffsetsLost, LogCorrupt) as gap:
            if on_gap is None:
                raise
            on_gap(gap)
            first = gap.last + 1
            continue
        if not len(records):
            return
        yield records
        first = records.next_offset


def tell(gap: EchomeshError) -> None:
    """Says to the side what is left out."""
    warn(f"left out: {gap}".partition("; skip ")[0], style="yellow")


@contextlib.contextmanager
def progress(total_bytes: int, what: str) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal, beside the results; gives a function to call with the bytes done since the last."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = console.is_terminal and not console.is_dumb_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not shown) as drawn:
        task = drawn.add_task(what, total=total_bytes)
        yield lambda done: drawn.advance(task, done)


def rfc3339(time_ns: int) -> str:
    """A time with all its nanoseconds: 2026-07-01T12:00:00.000000001Z."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ns:09d}Z"


def age_text(time_ns: int | None, now_ns: int) -> str:
    """How long ago that was: 3 s ago, 5 min ago, 12 days ago."""
    if time_ns is None:
        return ""
    seconds = max(0.0, (now_ns - time_ns) / 1e9)
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < until:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds / 86400:,.0f} days ago"
