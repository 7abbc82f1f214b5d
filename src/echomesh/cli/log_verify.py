"""`echomesh log verify`: every record of every segment, checked."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import typer

from echomesh.cli.common import FAILED, JsonOption, out, say, say_json, state
from echomesh.cli.log_common import (
    AnyEnvironmentOption,
    DataOption,
    FiltersArgument,
    Gap,
    batches,
    find_topics,
    progress,
    reading,
)
from echomesh.cli.log_facts import segment_facts, topic_facts
from echomesh.cli.text import amount_text, plural
from echomesh.errors import HoleError, LogCorrupt, OffsetGone
from echomesh.log import TopicReader


@dataclass(frozen=True)
class Bad:
    """Offsets of a topic that can't be read."""

    environment: str
    topic: str
    first: int
    last: int
    path: str = ""


@dataclass
class Verdict:
    """What was found."""

    topics: int = 0
    events: int = 0
    bytes: int = 0
    corrupt: list[Bad] = field(default_factory=list)
    lost: list[Bad] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all that should be there is."""
        return not self.corrupt


def verify(
    data: DataOption,
    topics: FiltersArgument = None,
    environment: AnyEnvironmentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the CRC of every event, and name the offsets of those that are bad; exit code 1 if there are any."""
    state.json = as_json
    started = time.monotonic()
    verdict = Verdict()
    with reading(data) as log:
        chosen = find_topics(log, topics, environment)
        total = sum(topic_facts(topic).bytes for topic in chosen)
        with progress(total, "verifying") as advance:
            for topic in chosen:
                _verify(topic, verdict, advance)
    elapsed = time.monotonic() - started
    if as_json:
        say_json(_as_dict(verdict, elapsed))
    else:
        _show(verdict, elapsed)
    if not verdict.ok:
        raise typer.Exit(FAILED)


def _verify(topic: TopicReader, verdict: Verdict, advance: Any) -> None:
    def gap(found: Gap) -> None:
        if isinstance(found, OffsetGone):
            return  # retention goes on meanwhile
        path = found.path if isinstance(found, LogCorrupt) else ""
        bad = Bad(topic.environment, topic.name, found.first, found.last, path)
        (verdict.lost if isinstance(found, HoleError) else verdict.corrupt).append(bad)

    verdict.topics += 1
    for records in batches(topic, topic.earliest, topic.end, gap):
        size = len(records.raw())
        verdict.events += len(records)
        verdict.bytes += size
        advance(size)
    for segment in segment_facts(topic):
        if segment.index in ("damaged", "missing"):
            verdict.indexes.append(
                f"{segment.path}: its index is {segment.index}; reads are slower until it is rebuilt"
            )


def _as_dict(verdict: Verdict, elapsed_s: float) -> dict[str, Any]:
    return {"ok": verdict.ok, **asdict(verdict), "elapsed_s": round(elapsed_s, 6)}


def _show(verdict: Verdict, elapsed_s: float) -> None:
    for bad in verdict.corrupt:
        where = f" in {bad.path}" if bad.path else ""
        say(f"{bad.topic} ({bad.environment}): offsets {bad.first} to {bad.last} are corrupt{where}", style="red")
    for bad in verdict.lost:
        say(
            f"{bad.topic} ({bad.environment}): offsets {bad.first} to {bad.last} were lost in an unclean stop",
            style="yellow",
        )
    for line in verdict.indexes:
        say(line, style="yellow")
    checked = f"{plural(verdict.events, 'event')} in {plural(verdict.topics, 'topic')}, {amount_text(verdict.bytes)}"
    speed = f"{elapsed_s:.2f} s"
    if verdict.ok:
        say(f"{checked}: every CRC is right ({speed}).")
        return
    count = sum(bad.last - bad.first + 1 for bad in verdict.corrupt)
    out().print(
        f"{plural(count, 'event')} can't be read; {checked} are right ({speed}).", style="bold red", soft_wrap=True
    )
