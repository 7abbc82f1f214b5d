"""The command line: `echomesh COMMAND`. A module a command; what they share is in `common` and `text`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command of `sys.argv` and ends the process with its exit code."""
    from echomesh.cli.app import run

    sys.exit(run())
