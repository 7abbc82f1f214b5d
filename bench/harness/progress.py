"""What is being measured, while it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call with a sentence before each of `total` steps."""
    console = Console(stderr=True)
    steps_done, sentence_now = TextColumn("{task.completed}/{task.total}"), TextColumn("{task.description}")
    columns = (BarColumn(), steps_done, TimeElapsedColumn(), sentence_now)
    # Redrawing takes CPU time from what is measured: twice a second is enough.
    with Progress(*columns, console=console, refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("", total=total)
        steps = 0

        def say(sentence: str) -> None:
            nonlocal steps
            bar.update(task, description=sentence, completed=steps)
            steps += 1
            if not console.is_terminal:
                console.print(sentence, highlight=False)

        yield say
