"""`echomesh log cat` and `echomesh log tail`: events as lines of JSON."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from echomesh.cli.common import Stop, hung_up, stoppable
from echomesh.cli.log_common import (
    DataOption,
    EnvironmentOption,
    FromOption,
    LimitOption,
    Range,
    SinceOption,
    SkipOption,
    ToOption,
    TopicArgument,
    UntilOption,
    batches,
    find_topic,
    reading,
    rfc3339,
    tell,
)
from echomesh.errors import BadEvent, LogCorrupt, OffsetsLost
from echomesh.events import Event
from echomesh.log import LogReader, Records, TopicReader
from echomesh.log.lock import writer_of
from echomesh.log.reader import ENVIRONMENT
from echomesh.log.view import LiveView
from echomesh.topics import matches, parse_filter

_LOOK_S = 0.1
_IDLE_S = 1.0
_WRITTEN_TOGETHER = 256

BareOption = Annotated[bool, typer.Option("--bare", help="The events alone, without topic, offset and time.")]


def cat(
    topic: TopicArgument,
    data: DataOption,
    first: FromOption = None,
    to: ToOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    bare: BareOption = False,
    skip: SkipOption = False,
    environment: EnvironmentOption = ENVIRONMENT,
) -> None:
    """Print events as lines of JSON: topic, offset, time of the append, and the event in CloudEvents' JSON format."""
    with reading(data) as log:
        found = find_topic(log, topic, environment)
        start, end = Range(first, to, since, until, limit).of(found)
        for records in batches(found, start, end, tell if skip else None):
            _write(lines(found.name, records, bare))


def lines(topic: str, records: Records, bare: bool) -> Iterator[bytes]:
    """The line of each record."""
    before = f'{{"topic":{json.dumps(topic)},"offset":'.encode()
    for offset, time_ns, _, encoded in records:
        try:
            event = Event.decode(encoded).to_json()
        except BadEvent as error:
            # Whoever writes to a log by hand may write anything.
            told = {"problem": str(error), "bytes_base64": base64.b64encode(encoded).decode()}
            event = json.dumps(told).encode()
        if bare:
            yield event + b"\n"
        else:
            yield b'%b%d,"timestamp":"%b","event":%b}\n' % (before, offset, rfc3339(time_ns).encode(), event)


def _write(found: Iterable[bytes]) -> None:
    waiting: list[bytes] = []
    for line in found:
        waiting.append(line)
        if len(waiting) >= _WRITTEN_TOGETHER:
            sys.stdout.buffer.write(b"".join(waiting))
            waiting.clear()
    sys.stdout.buffer.write(b"".join(waiting))
    sys.stdout.buffer.flush()


def tail(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", help="Topics, or filters with * and **.", show_default=False)
    ],
    data: DataOption,
    last: Annotated[int, typer.Option(min=0, metavar="N", help="Of each topic, first the last so many.")] = 10,
    limit: LimitOption = None,
    bare: BareOption = False,
    skip: SkipOption = False,
    environment: EnvironmentOption = ENVIRONMENT,
) -> None:
    """Print events as they come, until Ctrl-C; lines as those of `cat`."""
    with stoppable() as stop, reading(data) as log:
        followed = Followed(log, topics, environment, last, skip)
        left = sys.maxsize if limit is None else limit
        while left and not stop.asked and not hung_up():
            before = followed.word()
            count = 0
            for name, records in followed.read(left):
                _write(lines(name, records, bare))
                count += len(records)
                left -= len(records)
                if not left or stop.asked:
                    return
            if not count:
                followed.sleep(before, stop)


class Followed:
    """The topics that filters match, and how far each of them was read; new ones join from their beginning."""

    def __init__(self, log: LogReader, filters: list[str], environment: str, last: int, skip: bool) -> None:
        self.log = log
        self.filters = [parse_filter(name) for name in filters]
        self.environment = environment
        self.skip = skip
        self.topics: dict[int, TopicReader] = {}
        self.places: dict[int, int] = {}
        for name in self.filters:
            if "*" not in name:
                find_topic(log, name, environment)
        for topic in self._new():
            self.places[topic.number] = max(topic.earliest, topic.end - last)

    def _new(self) -> list[TopicReader]:
        known = len(self.topics)
        for name in self.log.topics():
            wanted = name.environment == self.environment and any(matches(each, name.name) for each in self.filters)
            if wanted and name.number not in self.topics:
                self.topics[name.number] = TopicReader(self.log, name)
        return list(self.topics.values())[known:]

    def read(self, most: int) -> Iterator[tuple[str, Records]]:
        """What has come since the last call, a batch of each topic at the most."""
        for topic in self._new():
            self.places[topic.number] = topic.earliest
        for number, topic in self.topics.items():
            try:
                if topic.end > self.places[number]:
                    records = topic.read(self.places[number], max_records=most)
                    most -= len(records)
                    self.places[number] = records.next_offset
                    yield topic.name, records
            except (OffsetsLost, LogCorrupt) as gap:
                if not self.skip:
                    raise
                tell(gap)
                self.places[number] = gap.last + 1

    def word(self) -> int:
        """Changes whenever there is something new."""
        view = self.log.current()
        return view.water.word if isinstance(view, LiveView) else 0

    def sleep(self, before: int, stop: Stop) -> None:
        """Until there may be something new since `word` was `before`, for a second at the most."""
        view = self.log.current()
        if isinstance(view, LiveView):
            if len(self.topics) == 1 and not any("*" in name for name in self.filters):
                ((number, place),) = self.places.items()
                view.water.wait(number, place, _IDLE_S)
            else:
                view.water.wait_any(before, _IDLE_S)
            if writer_of(self.log.paths.lock) == 0:
                self.log.refresh()  # one that was killed has not shown its last commit
            return
        deadline = time.monotonic() + _IDLE_S
        while self.log.view is view and time.monotonic() < deadline and not stop.asked:
            time.sleep(_LOOK_S)
            self.log.look()
