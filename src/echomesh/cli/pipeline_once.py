"""`echomesh pipeline run` for what has an end: a replay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from echomesh.cli.common import say, say_json, state, stoppable
from echomesh.cli.pipeline_options import Given
from echomesh.cli.text import plural


def once(name: str, start: Callable[..., int], options: Any, given: Given) -> None:
    """Does it, and says how many events were published."""
    from echomesh.cli.log_common import moment
    from echomesh.cli.pipeline_run import place_of
    from echomesh.spark.launch import session

    state.json = given.as_json
    place = place_of(given)
    spark = session(f"echomesh {name}", master=place.master, config=place.config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with stoppable() as asked:
            stop = threading.Event()
            asked.then(stop.set)
            events = start(options, place, spark, lambda text: moment(text) // 1_000_000, stop)
    finally:
        spark.stop()
    if given.as_json:
        say_json({"published": events})
    else:
        say(f"{plural(events, 'event')} published.")
