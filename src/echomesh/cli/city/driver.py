"""The process with Spark: `archive`, `windows` and `alerts` in one session, until it is told to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from echomesh.cli.city.events import TOPICS
from echomesh.spark.pipelines import ready
from echomesh.spark.pipelines.define import Pipeline
from echomesh.spark.pipelines.place import Place
from echomesh.spark.pipelines.registry import Entry
from echomesh.spark.pipelines.runner import RunOptions, run
from echomesh.spark.pipelines.sessions import shared

WINDOW_S: Final = 5.0
"""Of `windows`, and of its watermark."""
NAMES: Final = ("archive", "windows", "alerts")
# It lives for half a minute: what pays off later is left out.
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def place_of(data: str, server: str) -> Place:
    """Where the pipelines of the city are: read from the data directory, written over the node."""
    return Place(data=data, server=server, client_id="pipelines", config=_SETTINGS)


def pipelines(schemas: Path, rules: Path) -> list[Pipeline]:
    """The three of them."""
    span = f"{WINDOW_S:g} seconds"
    given: dict[str, dict[str, object]] = {
        "archive": {"topics": TOPICS, "typed": str(schemas), "every": "1 second"},
        "windows": {"topics": TOPICS, "window": span, "watermark": span},
        "alerts": {"rules": str(rules)},
    }
    made = []
    for name, options in given.items():
        module = ready.module(name)
        made.append(module.make(module.Options(**options)))
    return made


def main(data: str, server: str, settings: str) -> None:
    """Runs all of them; ends when each has ended."""
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, told)
    place = place_of(data, server)
    schemas, rules = Path(settings, "schemas.toml"), Path(settings, "rules.toml")
    # The node goes away for a while, and comes back: that is no reason to give up.
    options = RunOptions(restarts=60, first_wait_s=0.5)
    with shared("echomesh city", place, Path(settings)):
        threads = [_started(each, place, options, stop) for each in pipelines(schemas, rules)]
        for thread in threads:
            thread.join()


def _started(pipeline: Pipeline, place: Place, options: RunOptions, stop: threading.Event) -> threading.Thread:
    """Runs a pipeline in a thread, and waits until it does: all at once they would take longer than Spark waits."""
    running = threading.Event()

    def tell(entry: Entry) -> None:
        if entry.state != "starting":
            running.set()

    def go() -> None:
        try:
            run(pipeline, place, options, stop=stop, tell=tell)
        finally:
            running.set()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    running.wait()
    return thread


if __name__ == "__main__":
    main(*sys.argv[1:])
