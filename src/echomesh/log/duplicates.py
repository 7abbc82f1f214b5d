"""The duplicate window of a topic after a restart: read again from the end of its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from echomesh.errors import LogDamaged, UsageError
from echomesh.log.adopted import adopted, records_of
from echomesh.log.layout import HEADER_BYTES, parquet_name
from echomesh.log.segments import began_ns, listed
from echomesh.native.log_record import Records, scan
from echomesh.native.log_window import Window

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore


def window(log: LogCore, topic: ActiveTopic, now: int) -> Window | None:
    """The window over what the topic took last; None when the log keeps none."""
    made = empty(log)
    if made is not None:
        since = now - _age_ns(log)
        for base, until in reversed(_recent(log, topic, since)):
            for records in _records(log, topic, base, until, since):
                made.load(records, since)
    return made


def empty(log: LogCore) -> Window | None:
    """A window that knows nothing yet; None when the log keeps none."""
    if not log.options.knows_duplicates:
        return None
    return Window(log.budget, log.log_id, log.options.duplicate_events, _age_ns(log))


def _age_ns(log: LogCore) -> int:
    return int(log.options.duplicate_s * 1e9)


def _recent(log: LogCore, topic: ActiveTopic, since: int) -> list[tuple[int, int]]:
    # (first offset, end) of the segments that reach into the window, newest first.
    found: list[tuple[int, int]] = []
    until = end = topic.next_offset
    segments = listed(log.storage, topic.directory)
    for base in reversed(segments.firsts):
        if base >= until:
            continue
        if end - until >= log.options.duplicate_events:
            break
        found.append((base, until))
        until = base
        if began_ns(log, topic, base, segments.adopted) < since:
            break
    return found


def _records(log: LogCore, topic: ActiveTopic, base: int, until: int, since: int) -> Iterator[Records]:
    stage = adopted(topic.directory, log.storage.names(topic.directory)).get(base)
    if stage is not None:
        yield from records_of(log.storage, stage)
        return
    try:
        handle = log.open_segment(topic, base)
    except FileNotFoundError:
        yield from _converted(log, topic, base, since)
        return
    try:
        data = log.storage.pread(handle, log.storage.size(handle), 0)
    finally:
        log.storage.close(handle)
    yield scan(data, HEADER_BYTES, base, until)


def _converted(log: LogCore, topic: ActiveTopic, base: int, since: int) -> Iterator[Records]:
    # Young ones are Parquet files only when somebody wanted it so, or the window was made longer.
    try:
        from echomesh.log.parquet_file import open_segment

        segment = open_segment(log, f"{topic.directory}/{parquet_name(base)}", topic.number, base)
        for number, group in enumerate(segment.facts.groups):
            if group.last_time_ns >= since:
                yield segment.records(number)[1]
    except (UsageError, LogDamaged, FileNotFoundError) as error:
        log.report.notes.append(
            f"topic {topic.name}: duplicates of events in the segment from {base} are not recognized: {error}"
        )
