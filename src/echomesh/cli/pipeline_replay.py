"""`echomesh pipeline run replay`: events once more, into another topic."""

from __future__ import annotations

import threading
from typing import Any

from echomesh.cli.common import say, say_json, state, stoppable
from echomesh.cli.pipeline_options import Given
from echomesh.cli.text import plural


def replay(own: dict[str, Any], given: Given) -> None:
    """Replays, and says how many events that were."""
    from echomesh.cli.log_common import moment
    from echomesh.cli.pipeline_run import place_of
    from echomesh.spark.launch import session
    from echomesh.spark.pipelines.ready.replay import Options, start

    state.json = given.as_json
    place = place_of(given)
    spark = session("echomesh replay", master=place.master, config=place.config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with stoppable() as asked:
            stop = threading.Event()
            asked.then(stop.set)
            events = start(Options(**own), place, spark, lambda text: moment(text) // 1_000_000, stop)
    finally:
        spark.stop()
    if given.as_json:
        say_json({"replayed": events})
    else:
        say(f"{plural(events, 'event')} replayed.")
