"""What all commands share: options, consoles, signals, and the form of an error."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from echomesh.errors import EchomeshError, UsageError
from echomesh.nukleus.nukleus import DEFAULT_SPIN_S

FAILED = 1
MISUSED = 2


class Wait(StrEnum):
    """How to wait for the other side."""

    SPIN = "spin"
    BALANCED = "balanced"
    SLEEP = "sleep"

    @property
    def spin_s(self) -> float:
        """For how long to spin before sleeping."""
        return {Wait.SPIN: math.inf, Wait.BALANCED: DEFAULT_SPIN_S, Wait.SLEEP: 0.0}[self]


DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        envvar="ECHOMESH_DIR",
        help="Where the nuklei meet; this user's directory in /dev/shm when not given.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    Wait,
    typer.Option(help="spin: fastest, takes a whole core; sleep: no work while idle; balanced: spins a moment first."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


@dataclass
class State:
    """What the options say that concern the whole run."""

    debug: bool = False
    json: bool = False


state = State(debug=os.environ.get("ECHOMESH_DEBUG", "") not in ("", "0"))


def examples(*lines: str) -> str:
    """What stands below the help of a command."""
    return "\n".join(["[bold]Examples[/bold]", *(f"[cyan]{line}[/cyan]" for line in lines)])


def out() -> Console:
    """The console for results."""
    return Console(highlight=False)


def say(line: str, *, style: str | None = None) -> None:
    """Prints a line as it is: never cut, never broken."""
    out().print(escape(line), style=style, soft_wrap=True)


def warn(line: str, *, style: str | None = None) -> None:
    """Prints a line to the side, where it does not mix with results."""
    Console(stderr=True, highlight=False).print(escape(line), style=style, soft_wrap=True)


def say_json(value: Any) -> None:
    """Prints a value as one line of JSON."""
    print(json.dumps(value), flush=True)


def fail(error: EchomeshError) -> int:
    """Says what went wrong in one sentence, and gives the exit code for it."""
    if state.debug:
        traceback.print_exception(error)
    if state.json:
        say_json({"error": str(error), "kind": type(error).__name__})
    warn(f"error: {error}", style="bold red")
    return MISUSED if isinstance(error, UsageError) else FAILED


class Stop:
    """Whether somebody asked this process to stop, by Ctrl-C, SIGTERM or a closed terminal."""

    def __init__(self) -> None:
        self.asked = False
        self._act: Callable[[], None] = lambda: None

    def then(self, act: Callable[[], None]) -> None:
        """Calls this when it comes, or now when it came already."""
        self._act = act
        if self.asked:
            act()

    def ask(self) -> None:
        """Asks."""
        self.asked = True
        self._act()


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """While this holds, signals that would end the process ask it to stop; a second Ctrl-C insists."""
    stop = Stop()

    def handle(number: int, frame: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.ask()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_terminal() -> bool:
    """Whether results go to a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def hung_up() -> bool:
    """Whether nobody reads our output any more: `tail -f | head` should end when head has, not with the next line."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
