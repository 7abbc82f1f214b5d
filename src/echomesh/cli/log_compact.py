"""`echomesh log compact`: sealed segments become Parquet files."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from echomesh.cli.common import JsonOption, say, say_json, state
from echomesh.cli.log_common import (
    AnyEnvironmentOption,
    DataOption,
    FiltersArgument,
    duration,
    find_topics,
    progress,
    reading,
)
from echomesh.cli.log_facts import segment_facts
from echomesh.cli.text import amount_text, plural

if TYPE_CHECKING:
    from echomesh.log.parquet import Compaction, Conversion


def compact(
    data: DataOption,
    topics: FiltersArgument = None,
    older_than: Annotated[
        float,
        typer.Option(parser=duration, metavar="TIME", help="Only segments whose events are all older: 10m, 2h, 7d."),
    ] = "10m",  # type: ignore[assignment]  # parsed, as what the user gives
    environment: AnyEnvironmentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert sealed segments to Parquet: small, and readable for every engine. May run beside the writer."""
    state.json = as_json
    from echomesh.log import parquet

    started = time.monotonic()
    made: list[tuple[str, Compaction]] = []
    with reading(data) as log:
        chosen = find_topics(log, topics, environment)
        total = sum(each.bytes for topic in chosen for each in segment_facts(topic) if each.kind == "sealed")
        with progress(total, "compacting") as advance:

            def done(number: int, count: int, conversion: Conversion) -> None:
                advance(conversion.before_bytes)

            for topic in chosen:
                made.append((topic.environment, parquet.compact(topic, min_age_s=older_than, progress=done)))
    if as_json:
        say_json(
            {
                "segments": sum(len(each.done) for _, each in made),
                "before_bytes": sum(one.before_bytes for _, each in made for one in each.done),
                "after_bytes": sum(one.after_bytes for _, each in made for one in each.done),
                "topics": [
                    {"environment": where, "topic": each.topic, "segments": [asdict(one) for one in each.segments]}
                    for where, each in made
                    if each.segments
                ],
            }
        )
    else:
        _show(made, time.monotonic() - started)


def _show(made: list[tuple[str, Compaction]], elapsed_s: float) -> None:
    for where, each in made:
        for one in each.stayed:
            say(f"{each.topic} ({where}): the segment from {one.first} stays: {one.reason}", style="yellow")
    converted = [one for _, each in made for one in each.done]
    if not converted:
        say("Nothing to convert: no sealed segment is old enough, or all are Parquet already.")
        return
    before, after = sum(one.before_bytes for one in converted), sum(one.after_bytes for one in converted)
    share = f"{100 * after / before:.0f} %" if before else ""
    sizes = f"{amount_text(before)} became {amount_text(after)}, {share}"
    say(f"{plural(len(converted), 'segment')} converted: {sizes} ({elapsed_s:.2f} s).")
