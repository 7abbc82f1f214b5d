"""What the keys of a configuration take: each kind reads a value, and writes one as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from echomesh.mesh.codes import PORT
from echomesh.node.address import EXAMPLES, Address

_SIZES: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DECIMAL: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_TIMES: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)", re.ASCII)
LARGEST: Final = 1 << 50
LONGEST_S: Final = 36500 * 86400.0


@dataclass(frozen=True)
class Kind:
    """What a key takes: `read` raises `ValueError` for all else."""

    takes: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str]
    empty: str | None = None
    """What an empty text means, where it may be empty."""

    def value(self, given: object) -> Any:
        """The value, None for an empty one."""
        return None if given == "" and self.empty is not None else self.read(given)

    def toml(self, value: object) -> str:
        """The value as it is written."""
        return '""' if value is None else self.show(value)

    @property
    def sentence(self) -> str:
        """What it takes, in words."""
        return self.takes if self.empty is None else f"{self.takes}; empty: {self.empty}"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("no text")
    return value


def text(example: str, *, empty: str | None = None) -> Kind:
    """A text."""
    return Kind(f"a text such as {json.dumps(example)}", _text, json.dumps, empty)


def file(example: str, *, empty: str) -> Kind:
    """The path of a file or directory; a relative one is meant beside the file of configuration."""

    def read(value: object) -> Path:
        return Path(_text(value)).expanduser()

    return Kind(f"a path such as {json.dumps(example)}", read, lambda value: json.dumps(str(value)), empty)


def address(*, empty: str | None = None) -> Kind:
    """HOST:PORT."""

    def read(value: object) -> Address:
        return Address.parse(_text(value))

    return Kind(EXAMPLES, read, lambda value: json.dumps(str(value)), empty)


def texts(example: str) -> Kind:
    """A list of texts."""

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError("no list")
        return tuple(map(_text, value))

    return Kind(f"a list of texts such as [{json.dumps(example)}]", read, lambda value: json.dumps(list(value)))


@dataclass(frozen=True)
class BridgeLogin:
    """Who this server is at another one."""

    server: Address
    client: str
    password_file: Path | None = None

    def toml(self) -> str:
        """The entry, as it is written."""
        file = "" if self.password_file is None else f", password_file = {json.dumps(str(self.password_file))}"
        return f"{json.dumps(str(self.server))} = {{ client = {json.dumps(self.client)}{file} }}"


def logins() -> Kind:
    """Logins by the address of a server."""

    def read(value: object) -> tuple[BridgeLogin, ...]:
        if not isinstance(value, dict):
            raise ValueError("no table")
        return tuple(_login(server, entry) for server, entry in value.items())

    def show(found: tuple[BridgeLogin, ...]) -> str:
        return f"{{ {', '.join(login.toml() for login in found)} }}" if found else "{}"

    takes = 'a table such as { "mesh-2.example:4889" = { client = "mesh-1", password_file = "secret" } }'
    return Kind(takes, read, show)


def _login(server: str, entry: object) -> BridgeLogin:
    if not isinstance(entry, dict) or not {"client"} <= entry.keys() <= {"client", "password_file"}:
        raise ValueError("no login")
    file = Path(_text(entry["password_file"])).expanduser() if "password_file" in entry else None
    return BridgeLogin(Address.parse(server, PORT), _text(entry["client"]), file)


def flag() -> Kind:
    """true or false."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("no flag")
        return value

    return Kind("true or false", read, json.dumps)


def count(least: int, most: int, *, empty: str | None = None) -> Kind:
    """A whole number."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError("out of range")
        return value

    return Kind(f"a whole number from {least:,} to {most:,}", read, lambda value: f"{value:_}", empty)


def size(least: int = 0, most: int = LARGEST, *, empty: str | None = None) -> Kind:
    """Bytes: a number, or a text such as "64 MiB"."""

    def read(value: object) -> int:
        found = _amount(value, _SIZES | _DECIMAL)
        if not least <= found <= most or found != int(found):
            raise ValueError("out of range")
        return int(found)

    takes = f'a size from {show_size(least)} to {show_size(most)}, such as "64 MiB" or 65536 (bytes)'
    return Kind(takes, read, lambda value: json.dumps(show_size(value)), empty)


def span(least: float, most: float = LONGEST_S, *, empty: str | None = None) -> Kind:
    """Seconds: a number, or a text such as "10m"."""

    def read(value: object) -> float:
        found = float(_amount(value, _TIMES))
        if not least <= found <= most:
            raise ValueError("out of range")
        return found

    takes = f'a time from {show_span(least)} to {show_span(most)}, such as "90s", "15m", "2h" or 0.5 (seconds)'
    return Kind(takes, read, lambda value: json.dumps(show_span(value)), empty)


def _amount(value: object, units: Mapping[str, float]) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = _AMOUNT.fullmatch(_text(value))
    if found is None or found[2] not in units:
        raise ValueError("no amount")
    number = float(found[1]) if "." in found[1] else int(found[1])
    return number * units[found[2]]


def show_size(count: int) -> str:
    """The bytes in the largest unit that is exact."""
    unit = next(unit for unit, size in reversed(_SIZES.items()) if count % size == 0 and (count or size == 1))
    return f"{count // _SIZES[unit]} {unit or 'B'}"


def show_span(seconds: float) -> str:
    """The seconds in the largest unit that is exact."""
    for unit in ("w", "d", "h", "m", "s", "ms"):
        if seconds and (number := seconds / _TIMES[unit]) == int(number):
            return f"{int(number)}{unit}"
    return f"{seconds:g}s"
