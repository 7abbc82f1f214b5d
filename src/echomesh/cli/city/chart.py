"""A chart of a minute in the city, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 48, 40
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #444 }
.title { font-size: 16px; font-weight: 600; fill: #111 }
.grid { stroke: #ddd } .kill { stroke: #c22; stroke-dasharray: 4 3 } .killed { fill: #c22 }
.stored { fill: #9cc9b8 } .published { fill: none; stroke: #1565c0; stroke-width: 2 }
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
    """Events acknowledged in each second as a line, events in tables as bars, and what happened when."""
    most = max(1, *published.values(), *stored.values())

    def x(second: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * second / max(1, seconds)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        value = share * most
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for second in range(0, seconds + 1, 10):
        parts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{second} s</text>')
    wide = (WIDTH - _LEFT - _RIGHT) / max(1, seconds) * 0.8
    for second, value in sorted(stored.items()):
        if 0 <= second <= seconds:
            top = y(value)
            parts.append(
                f'<rect class="stored" x="{x(second):.1f}" y="{top:.1f}" width="{wide:.1f}" '
                f'height="{y(0) - top:.1f}"><title>{value:,} events into tables</title></rect>'
            )
    points = " ".join(f"{x(second + 0.5):.1f},{y(published.get(second, 0)):.1f}" for second in range(seconds))
    parts.append(f'<polyline class="published" points="{points}"/>')
    for at, name in kills:
        parts.append(f'<line class="kill" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{y(0):.1f}"/>')
        parts.append(f'<text class="killed" x="{x(at) + 4:.1f}" y="{_TOP - 4}">{escape(name)}</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="24" text-anchor="end">line: acknowledged, bars: in tables</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
