"""Where reads begin and end, as the options say it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from echomesh.errors import BadOption, DataLoss
from echomesh.spark.options import Place, SourceOptions
from echomesh.spark.reach import Bounds, Range, Reach

logger = logging.getLogger(__name__)


def batch(reach: Reach, options: SourceOptions) -> list[Range]:
    """What a batch reads: from `starting`, else the earliest, up to `ending`, else the end."""
    bounds = reach.bounds(options.subscribe)
    begin = places(reach, options, options.starting or Place("earliest"), bounds, "starting")
    end = places(reach, options, options.ending or Place("latest"), bounds, "ending")
    return [Range(topic, begin[topic], end[topic]) for topic in bounds]


def places(reach: Reach, options: SourceOptions, place: Place, bounds: Bounds, which: str) -> dict[str, int]:
    """The offset of each topic at this place."""
    if place.time_us is not None:
        return reach.at_time(list(bounds), place.time_us)
    if place.topics is not None:
        return _named(options, place.topics, bounds, which)
    return {topic: earliest if place.word == "earliest" else end for topic, (earliest, end) in bounds.items()}


def _named(options: SourceOptions, wanted: Mapping[str, int | str], bounds: Bounds, which: str) -> dict[str, int]:
    if strange := [topic for topic in wanted if topic not in bounds]:
        raise BadOption(f"{which}Offsets", f"names topics that are not there or not subscribed: {_few(strange)}")
    found = {}
    for topic, (earliest, end) in bounds.items():
        at = wanted.get(topic, "earliest" if which == "starting" else "latest")
        if isinstance(at, str):
            found[topic] = earliest if at == "earliest" else end
        else:
            found[topic] = _within(options, topic, at, earliest, end)
    return found


def _within(options: SourceOptions, topic: str, at: int, earliest: int, end: int) -> int:
    if earliest <= at <= end:
        return at
    if at < earliest:
        lost(
            options.fail_on_data_loss,
            DataLoss(topic, at, earliest - 1, f"they are gone: the topic begins at {earliest}"),
        )
        return earliest
    lost(options.fail_on_data_loss, DataLoss(topic, end, at - 1, f"the topic ends at {end}"))
    return end


def lost(fail: bool, loss: DataLoss) -> int:
    """Raises it, or says it and how many events it is about when the query is to go on."""
    if fail:
        raise loss from None
    count = loss.last - loss.first + 1 if loss.topic else 0
    logger.warning("%d events lost: %s", count, loss.what)
    return count


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
