"""The configuration as a TOML file: read with care, and written with an explanation of every key."""

from __future__ import annotations

import difflib
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from echomesh.errors import BadConfig
from echomesh.errors.general import short
from echomesh.node.config import Config
from echomesh.node.keys import BridgeLogin, Kind

MAX_FILE_BYTES: Final = 1 << 20
_WIDTH: Final = 100

_INTRODUCTION: Final = (
    "The configuration of an echomesh server: echomesh up --config FILE",
    "",
    "Every key stands here with its default; leave out those that you don't change. Sizes are bytes or texts",
    'such as "64 MiB", times are seconds or texts such as "90s", "15m", "2h", "7d". Relative paths are meant',
    "beside this file.",
)


def read_config(path: Path) -> Config:
    """The configuration in a file; `BadConfig` names the key that is wrong, and what it takes."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BadConfig(f"{path}: it has more than {MAX_FILE_BYTES} bytes")
        text = data.decode()
    except OSError as error:
        raise BadConfig(f"{path}: it can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadConfig(f"{path}: it is not UTF-8") from None
    return parse_config(text, path)


def parse_config(text: str, path: Path = Path("echomesh.toml")) -> Config:
    """The configuration in the text of a file; relative paths are meant beside `path`."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error).partition("\n")[0] if isinstance(error, ValueError) else "it is nested too deeply"
        raise BadConfig(f"{path}: it is not TOML: {why}") from None
    made: Config = _section(Config, content, path, "")
    return made


def _section(section: type[Any], content: dict[str, Any], path: Path, before: str) -> Any:
    known = _keys(section)
    values: dict[str, Any] = {}
    for name, given in content.items():
        place = before + (name if name.isidentifier() and len(name) <= 80 else short(name))
        found = known.get(name)
        if found is None:
            raise BadConfig(f"{path}: unknown key {place}: {_hint(name, known, before)}", place)
        if isinstance(found, Key):
            values[name] = _value(found.kind, given, path, place)
        elif isinstance(given, dict):
            values[name] = _section(found, given, path, f"{place}.")
        else:
            raise BadConfig(f"{path}: {place} = {short(given)}: it takes a table, [{place}]", place)
    return section(**values)


class Key(NamedTuple):
    """One key of a section."""

    kind: Kind
    explanation: str


def _keys(section: type[Any]) -> dict[str, Key | type[Any]]:
    """The keys and the sections in it, by name."""
    found: dict[str, Key | type[Any]] = {}
    for name, hint in get_type_hints(section, include_extras=True).items():
        found[name] = Key(*hint.__metadata__) if hasattr(hint, "__metadata__") else hint
    return found


def _value(kind: Kind, given: object, path: Path, place: str) -> Any:
    try:
        value = kind.value(given)
    except (ValueError, OverflowError, RuntimeError):
        raise BadConfig(f"{path}: {place} = {short(given)}: it takes {kind.sentence}", place) from None
    return _beside(path.parent, value)


def _beside(directory: Path, value: Any) -> Any:
    if isinstance(value, Path):
        return directory / value
    if isinstance(value, BridgeLogin) and value.password_file is not None:
        return replace(value, password_file=directory / value.password_file)
    return tuple(_beside(directory, each) for each in value) if type(value) is tuple else value


def _hint(name: str, known: dict[str, Key | type[Any]], before: str) -> str:
    if "password" in name and name not in known:
        return "a password does not stand here, but in the file that bridges.password_file names"
    if close := difflib.get_close_matches(name[:80], known, n=1):
        return f"did you mean {before}{close[0]}?"
    top = _keys(Config)
    if name in top:
        return "it stands above all tables"
    for section, found in top.items():
        if not isinstance(found, Key) and name in _keys(found):
            return f"it belongs into [{section}]"
    return f"{f'[{before[:-1]}] has' if before else 'there is'} {', '.join(known)}"


def config_text() -> str:
    """The whole file: all keys, their explanations and defaults."""
    return "\n".join(["# " + line if line else "#" for line in _INTRODUCTION] + ["", *_lines(Config())])


def _lines(section: object) -> Iterator[str]:
    inner: list[tuple[str, object]] = []
    for name, found in _keys(type(section)).items():
        value = getattr(section, name)
        if not isinstance(found, Key):
            inner.append((name, value))
            continue
        empty = "" if found.kind.empty is None else f" Empty: {found.kind.empty}."
        yield from _comment(found.explanation + empty)
        yield f"{name} = {found.kind.toml(value)}"
        yield ""
    for name, value in inner:
        yield from _comment(type(value).__doc__ or "")
        yield f"[{name}]"
        yield ""
        yield from _lines(value)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
