"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import signal
import sys
from types import FrameType, ModuleType

from rich.console import Console

import bench
from bench.harness.machine import machine
from bench.harness.rows import row_of, write
from bench.harness.table import table


def parts() -> dict[str, ModuleType]:
    """The modules of bench that have a `run`, by name."""
    names = [found.name for found in pkgutil.iter_modules(bench.__path__) if not found.ispkg]
    modules = {name: importlib.import_module(f"bench.{name}") for name in names if not name.startswith("_")}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


def command(arguments: list[str] | None = None) -> None:
    """Runs the parts that were asked for."""
    known = parts()
    parser = argparse.ArgumentParser("python -m bench", description="Measures echomesh beside its peers.")
    parser.add_argument("--only", choices=sorted(known), help="one part; all of them without this")
    parser.add_argument("--quick", action="store_true", help="about a minute in all, with few repetitions")
    options = parser.parse_args(arguments)
    stop_like_ctrl_c()
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 200)
    try:
        for name in [options.only] if options.only else sorted(known):
            rows = [row_of(row) for row in known[name].run(options.quick)]
            path = write(name, machine(), rows)
            console.print(table(name, rows))
            for note in dict.fromkeys(note for row in rows for note in row.notes):
                console.print(f"not counted: {note}", style="yellow", highlight=False, markup=False)
            console.print(f"{path}\n", highlight=False)
    except KeyboardInterrupt:
        sys.exit(130)


def stop_like_ctrl_c() -> None:
    """From now on SIGTERM too ends the processes and removes the files."""
    signal.signal(signal.SIGTERM, _stopped)


def _stopped(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
