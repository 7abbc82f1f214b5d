"""`echomesh echo`: an Echo nukleus, until somebody stops it."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from echomesh.cli.common import DirOption, Wait, WaitOption, say, stoppable
from echomesh.cli.text import plural
from echomesh.nukleus import Echo, Nukleus

_STANDARD_INPUT = 0


def echo(
    name: Annotated[str, typer.Option(help="The name that others reach it by.")] = "echo",
    directory: DirOption = None,
    wait: WaitOption = Wait.BALANCED,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Run a nukleus that sends everything back."""
    with stoppable() as stop, Nukleus(name, Echo(), directory=directory) as nukleus:
        stop.then(nukleus.stop)
        if until_input_ends:
            threading.Thread(target=_at_end_of_input, args=(nukleus.stop,), daemon=True).start()
        say(f"{name} is ready in {nukleus.directory.root}: try {_ping_command(nukleus)}; Ctrl-C stops it.")
        nukleus.run(spin=wait.spin_s)
        counters = nukleus.counters
    frames = plural(counters.get("frames read", 0), "frame")
    streams = plural(counters.get("streams opened", 0), "stream")
    say(f"{name} stopped: it read {frames} on {streams} and left no file.")


def _ping_command(nukleus: Nukleus) -> str:
    words = ["echomesh", "ping"]
    if nukleus.name != "echo":
        words.append(nukleus.name)
    if os.environ.get("ECHOMESH_DIR") != str(nukleus.directory.root) and not _is_default(nukleus):
        words += ["--dir", str(nukleus.directory.root)]
    return shlex.join(words)


def _is_default(nukleus: Nukleus) -> bool:
    from echomesh.nukleus.directory import default_root

    return nukleus.directory.root == default_root()


def _at_end_of_input(act: Callable[[], None]) -> None:
    # Not through sys.stdin: a thread that still reads would hold its lock when the interpreter ends.
    while os.read(_STANDARD_INPUT, 4096):
        pass
    act()
