"""`echomesh log ls` and `echomesh log stats`: what is in a log, and how it grows."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from echomesh.cli.common import JsonOption, out, say_json, state
from echomesh.cli.log_common import (
    AnyEnvironmentOption,
    DataOption,
    FiltersArgument,
    age_text,
    find_topics,
    reading,
    rfc3339,
)
from echomesh.cli.log_facts import (
    SegmentFacts,
    TopicFacts,
    appended_since,
    disk_bytes,
    segment_facts,
    topic_facts,
)
from echomesh.cli.text import amount_text, plural, rate_text
from echomesh.log import LogReader, TopicReader
from echomesh.log.lock import writer_of

_NARROW = 100
_BUSIEST = 10
_SEGMENTS_SHOWN = 20


def ls(
    data: DataOption,
    topics: FiltersArgument = None,
    environment: AnyEnvironmentOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the topics: offsets, sizes, and when the last event came."""
    state.json = as_json
    with reading(data) as log:
        found = [topic_facts(topic) for topic in find_topics(log, topics, environment)]
        if as_json:
            say_json({**_log(log), "topics": [_topic(facts) for facts in found]})
            return
        console = out()
        if not found:
            console.print(Text(f"No topics in {data}."))
            return
        console.print(_table(found, console.width, time.time_ns()))


def _log(log: LogReader) -> dict[str, Any]:
    return {
        "data": log.paths.root,
        "log_id": log.log_id.hex(),
        "writer": writer_of(log.paths.lock) or None,
    }


def _topic(facts: TopicFacts) -> dict[str, Any]:
    last = facts.last_time_ns
    found = {**dataclasses.asdict(facts), "events": facts.events, "last": None if last is None else rfc3339(last)}
    del found["last_time_ns"]
    return found


def _table(found: list[TopicFacts], width: int, now_ns: int) -> Table:
    wide = width >= _NARROW
    several = len({facts.environment for facts in found}) > 1
    table = _plain()
    if several:
        table.add_column("env", no_wrap=True)
    table.add_column("topic", overflow="fold")
    table.add_column("level", no_wrap=True)
    for title in ("earliest", "next", *(("events",) if wide else ()), "size", *(("segments",) if wide else ())):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("last", justify="right", no_wrap=True)
    for facts in found:
        table.add_row(
            *((facts.environment,) if several else ()),
            Text(facts.topic, style="bold"),
            facts.level,
            f"{facts.earliest:,}",
            f"{facts.next:,}",
            *((f"{facts.events:,}",) if wide else ()),
            amount_text(facts.bytes),
            *((f"{facts.segments:,}",) if wide else ()),
            Text(age_text(facts.last_time_ns, now_ns), style="dim"),
        )
    return table


def _plain() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def stats(
    data: DataOption,
    topics: FiltersArgument = None,
    environment: AnyEnvironmentOption = None,
    window: Annotated[
        float, typer.Option(min=0.001, metavar="S", help="Rates are those of the last so many seconds.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Show sizes and rates; with topics, their segments and indexes too."""
    state.json = as_json
    with reading(data) as log:
        chosen = find_topics(log, topics, environment)
        now = time.time_ns()
        since = now - round(window * 1e9)
        found = [(topic, topic_facts(topic)) for topic in chosen]
        rates = [_rate(topic, facts, since, window) for topic, facts in found]
        segments = [segment_facts(topic) if topics else [] for topic in chosen]
        if as_json:
            say_json(_stats(log, window, [facts for _, facts in found], rates, segments if topics else None))
            return
        console = out()
        figures = [facts for _, facts in found]
        if topics:
            for facts, rate, listed in zip(figures, rates, segments, strict=True):
                console.print(_one_topic(facts, rate, listed, window, now))
        else:
            console.print(_whole_log(log, figures, rates, window))


def _rate(topic: TopicReader, facts: TopicFacts, since_ns: int, window_s: float) -> float:
    # A topic that was silent for so long needs no search.
    if facts.last_time_ns is None or facts.last_time_ns < since_ns:
        return 0.0
    return appended_since(topic, since_ns) / window_s


def _rate_text(per_second: float) -> str:
    # A topic with an event now and then is not silent.
    return f"{per_second:.2g}/s" if 0 < per_second < 1 else rate_text(per_second)


def _usage(log: LogReader) -> dict[str, int]:
    paths = log.paths
    return {"segments": disk_bytes(paths.topics), "journal": disk_bytes(paths.journal),
            "staging": disk_bytes(paths.staging)}  # fmt: skip


def _stats(
    log: LogReader,
    window_s: float,
    found: list[TopicFacts],
    rates: list[float],
    segments: list[list[SegmentFacts]] | None,
) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for i, (facts, rate) in enumerate(zip(found, rates, strict=True)):
        listed.append({**_topic(facts), "per_second": round(rate, 3)})
        if segments is not None:
            listed[-1]["segment_list"] = [dataclasses.asdict(segment) for segment in segments[i]]
    return {
        **_log(log),
        "window_s": window_s,
        "events": sum(facts.events for facts in found),
        "bytes": sum(facts.bytes for facts in found),
        "per_second": round(sum(rates), 3),
        "disk_bytes": _usage(log),
        "topics": listed,
    }


def _whole_log(log: LogReader, found: list[TopicFacts], rates: list[float], window_s: float) -> RenderableType:
    pid = writer_of(log.paths.lock)
    who = f"written by process {pid}" if pid > 0 else "written by another process" if pid else "no writer"
    head = Text(log.paths.root, style="bold")
    head.append(f"  {who}", style="not bold green" if pid else "not bold dim")
    head.append(f"  log id {log.log_id.hex()}", style="not bold dim")
    usage = _usage(log)
    lines = [
        head,
        Text(
            f"  {plural(sum(facts.events for facts in found), 'event')} in {plural(len(found), 'topic')}, "
            f"{amount_text(sum(facts.bytes for facts in found))}"
        ),
        Text("  on disk: " + ", ".join(f"{name} {amount_text(size)}" for name, size in usage.items())),
        Text(f"  {_rate_text(sum(rates))} in the last {window_s:g} s"),
    ]
    busiest = sorted(zip(rates, found, strict=True), key=lambda pair: -pair[0])[:_BUSIEST]
    if not busiest or not busiest[0][0]:
        return Group(*lines)
    table = _plain()
    table.add_column("  busiest", overflow="fold")
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for rate, facts in busiest:
        if rate:
            table.add_row(f"  {facts.topic}", _rate_text(rate), f"{facts.events:,}", amount_text(facts.bytes))
    return Group(*lines, Text(), table)


def _one_topic(
    facts: TopicFacts, rate: float, segments: list[SegmentFacts], window_s: float, now_ns: int
) -> RenderableType:
    head = Text(facts.topic, style="bold")
    head.append(f"  {facts.environment}  level {facts.level}", style="not bold dim")
    each = f", {facts.bytes / facts.events:,.0f} B each" if facts.events else ""
    lines = [
        head,
        Text(f"  {plural(facts.events, 'event')}, offsets from {facts.earliest:,}, the next is {facts.next:,}"),
        Text(f"  {amount_text(facts.bytes)}{each}; {amount_text(facts.disk_bytes)} on disk"),
    ]
    if facts.last_time_ns is not None:
        last = age_text(facts.last_time_ns, now_ns)
        lines.append(Text(f"  {_rate_text(rate)} in the last {window_s:g} s; last event {last}"))
    if not segments:
        return Group(*lines, Text())
    table = _plain()
    table.add_column("  segment", justify="right", no_wrap=True)
    for title in ("events", "size", "on disk"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("index", no_wrap=True)
    table.add_column("", no_wrap=True)
    hidden = max(0, len(segments) - _SEGMENTS_SHOWN)
    for segment in segments[hidden:]:
        style = {"damaged": "red", "missing": "yellow"}.get(segment.index, "")
        table.add_row(
            f"{segment.first:,}",
            f"{segment.end - segment.first:,}",
            amount_text(segment.bytes),
            amount_text(segment.disk_bytes),
            Text(
                f"{segment.index}, {segment.index_entries:,} entries" if segment.kind != "parquet" else "", style=style
            ),
            Text(segment.kind, style="dim"),
        )
    more = [Text(f"  the last {_SEGMENTS_SHOWN} of {plural(len(segments), 'segment')}:", style="dim")] if hidden else []
    return Group(*lines, *more, table, Text())
