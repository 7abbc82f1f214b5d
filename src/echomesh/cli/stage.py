"""Where the demonstration plays: acts, drawn in place on a terminal and told in plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

_MARKS = {"ok": ("✓", "bold green"), "bad": ("✗", "bold red"), "kill": ("✗", "bold red"), "": ("·", "dim")}
_LEVELS = "▂▃▄▅▆▇█"


class Act:
    """One act: a title, a picture that changes, and lines below it."""

    def __init__(self, console: Console, live: bool, title: str) -> None:
        self._console = console
        self._title = Text.assemble(("▌ ", "cyan"), (title, "bold"))
        self._picture: RenderableType | None = None
        self._lines: list[Text] = []
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="visible") if live else None

    def draw(self, picture: RenderableType) -> None:
        """Shows this in place of the last picture; without a terminal only the last one is printed."""
        self._picture = picture
        self._refresh()

    def say(self, line: str, mark: str = "") -> None:
        """Adds a line, in which Rich's markup may be used."""
        sign, style = _MARKS[mark]
        text = Text.assemble((f"{sign} ", style), Text.from_markup(line))
        self._lines.append(text)
        if self._live is None:
            self._console.print(Padding(text, (0, 0, 0, 2)))
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            picture = [] if self._picture is None else [Padding(self._picture, (0, 0, 0, 2))]
            lines = [Padding(line, (0, 0, 0, 2)) for line in self._lines]
            self._live.update(Group(self._title, *picture, *lines, Text()), refresh=True)

    def __enter__(self) -> Act:
        if self._live is not None:
            self._live.start()
            self._refresh()
        else:
            self._console.print(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            if self._picture is not None:
                self._console.print(Padding(self._picture, (0, 0, 0, 2)))
            self._console.print()


class Sparkline:
    """A row of small bars, one for each moment, or for several when there are more than have room; nothing is a dot."""

    def __init__(self, width: int, legend: str) -> None:
        self._width = width - len(legend) - 2
        self._legend = legend
        self._values: list[float] = []

    def add(self, value: float, times: int = 1) -> None:
        """Adds a moment, or several alike."""
        self._values += [value] * times

    @property
    def moments(self) -> int:
        """How many there are."""
        return len(self._values)

    @property
    def step(self) -> int:
        """How many moments a bar stands for."""
        return max(1, -(-len(self._values) // self._width))

    def __rich__(self) -> Text:
        step = self.step
        parts = [self._values[first : first + step] for first in range(0, len(self._values), step)]
        shown = [sum(part) / len(part) for part in parts]
        most = max(shown, default=0.0) or 1.0
        text = Text(no_wrap=True)
        for value in shown:
            level = round(value / most * (len(_LEVELS) - 1))
            text.append(_LEVELS[level] if value else "·", style="green" if value else "bold red")
        return text.append(f"  {self._legend}", style="dim")


def marks(found: list[tuple[int, str]], step: int) -> Text:
    """What happened at which moment, below a sparkline with this step; each begins where it happened, or soon after."""
    text = ""
    for moment, name in found:
        text = text.ljust(max(len(text) + bool(text), moment // step)) + f"↑{name}"
    return Text(text, style="dim", no_wrap=True)


def commands(lines: list[tuple[str, str]]) -> Text:
    """Commands to paste, with what each is for behind it."""
    width = max(len(words) for words, _ in lines)
    return Text("\n").join(
        Text.assemble("  ", (words.ljust(width), "bold cyan"), (f"  # {comment}", "dim")) for words, comment in lines
    )
