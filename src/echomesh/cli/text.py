"""Numbers and bars as people like to read them."""

from __future__ import annotations

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def size_text(count: float) -> str:
    """Bytes in binary units, as rings and buffers are sized: 64 B, 1 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count == int(count) or count >= 100 else f"{count:.1f} {unit}"


def amount_text(count: float) -> str:
    """Bytes in decimal units, as flows are: 6.7 MB."""
    return f"{_scaled(count, ('B', 'kB', 'MB', 'GB', 'TB'))}"


def rate_text(per_second: float) -> str:
    """How often a second something happened: 950/s, 52.1 k/s, 3.2 M/s."""
    return f"{_scaled(per_second, ('', 'k', 'M', 'G'))}/s"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    for unit in units:
        if value < 999.5 or unit == units[-1]:
            break
        value /= 1000
    # The first unit counts whole things.
    number = f"{value:.0f}" if unit == units[0] or value >= 99.95 else f"{value:.1f}"
    return f"{number} {unit}" if unit else number


def time_text(ns: float) -> str:
    """A duration in three figures: 8.12 µs, 1.30 ms, 2.00 s."""
    value, unit = ns / 1e3, "µs"
    for larger in ("ms", "s"):
        if value >= 999.5:
            value, unit = value / 1000, larger
    figures = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{figures}f} {unit}"


def bar(part: float, width: int) -> str:
    """A bar of blocks, `part` of `width` characters long; what is not nothing is never drawn as nothing."""
    eighths = round(min(1.0, max(0.0, part)) * width * 8)
    if part > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def plural(count: int, thing: str) -> str:
    """1 frame, 2,000 frames."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")
