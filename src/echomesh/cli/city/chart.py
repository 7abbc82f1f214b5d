"""A chart of a minute in the city, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 64, 40
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #444 }
.title { font-size: 16px; font-weight: 600; fill: #111 }
.grid { stroke: #ddd } .kill { stroke: #c22; stroke-dasharray: 4 3 } .killed { fill: #c22 }
.stored { fill: #9cc9b8; fill-opacity: .8 } .published { fill: none; stroke: #1565c0; stroke-width: 2 }
.line { fill: #1565c0 } .area { fill: #4a8f76 }
@media (prefers-color-scheme: dark) {
  svg { background: #16181c } text { fill: #bbb } .title { fill: #eee } .grid { stroke: #333 }
}
"""


def chart(
    published: Mapping[int, int],
    stored: Mapping[int, int],
    seconds: int,
    kills: Sequence[tuple[float, str]],
    title: str,
) -> str:
    """How many events were acknowledged by each second, how many were in tables, and what happened when.

    `published` and `stored` are the events of each second.
    """
    lines = [list(accumulate(each.get(second, 0) for second in range(seconds + 1))) for each in (published, stored)]
    most = max(1, *lines[0], *lines[1])

    def x(second: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * second / (seconds + 1)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>',
    ]
    for value in (0, most // 2, most):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,}</text>')
    for second in range(0, seconds + 1, 10):
        parts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{second} s</text>')
    # A table grows at once, with each commit: steps. Publishers never stop: a line.
    steps = " ".join(
        f"{x(second):.1f},{y(value):.1f} {x(second + 1):.1f},{y(value):.1f}" for second, value in enumerate(lines[1])
    )
    parts.append(f'<polygon class="stored" points="{x(0):.1f},{y(0):.1f} {steps} {x(seconds + 1):.1f},{y(0):.1f}"/>')
    points = " ".join(f"{x(second + 1):.1f},{y(value):.1f}" for second, value in enumerate(lines[0]))
    parts.append(f'<polyline class="published" points="{x(0):.1f},{y(0):.1f} {points}"/>')
    for at, name in kills:
        parts.append(f'<line class="kill" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{y(0):.1f}"/>')
        parts.append(f'<text class="killed" x="{x(at) + 4:.1f}" y="{_TOP - 4}">{escape(name)}</text>')
    parts.append(
        f'<text x="{WIDTH - _RIGHT}" y="24" text-anchor="end">events <tspan class="line">acknowledged</tspan> and '
        f'<tspan class="area">in tables</tspan></text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
