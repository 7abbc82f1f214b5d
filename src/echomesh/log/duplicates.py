"""The duplicate window of a topic after a restart: read again from the end of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.log.layout import HEADER_BYTES
from echomesh.native.log_record import scan
from echomesh.native.log_window import Window

if TYPE_CHECKING:
    from echomesh.log.active import ActiveTopic
    from echomesh.log.core import LogCore


def window(log: LogCore, topic: ActiveTopic, now: int) -> Window | None:
    """The window over what the topic took last; None when the log keeps none."""
    options = log.options
    if options.duplicate_bytes <= 0 or options.duplicate_events <= 0:
        return None
    age_ns = int(options.duplicate_s * 1e9)
    made = Window(log.budget, log.log_id, options.duplicate_events, age_ns)
    for base, until in reversed(_recent(log, topic, now - age_ns)):
        made.load(scan(_read(log, topic, base), HEADER_BYTES, base, until), now - age_ns)
    return made


def _recent(log: LogCore, topic: ActiveTopic, since: int) -> list[tuple[int, int]]:
    # (first offset, end) of the segments that reach into the window, newest first.
    found: list[tuple[int, int]] = []
    until = end = topic.next_offset
    for base in reversed(topic.segments()):
        if base >= until:
            continue
        if end - until >= log.options.duplicate_events:
            break
        found.append((base, until))
        until = base
        if topic.first_time(base) < since:
            break
    return found


def _read(log: LogCore, topic: ActiveTopic, base: int) -> bytes:
    handle = log.open_segment(topic, base)
    try:
        return log.storage.pread(handle, log.storage.size(handle), 0)
    finally:
        log.storage.close(handle)
