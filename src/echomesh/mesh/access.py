"""Who may what: the clients of an access file, and their rights.

    [clients.shop]
    password = "scrypt$..."
    environments = ["TST"]
    publish = ["orders/**"]
    subscribe = ["orders/**", "alerts"]
    publishes_per_second = 5000

A client or a right that is not in the file is not there. A client id is a literal, never a pattern.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from echomesh.errors import BadAccessFile, BadTopic, UsageError
from echomesh.errors.general import short
from echomesh.mesh.codes import ENVIRONMENTS
from echomesh.mesh.passwords import PasswordHash
from echomesh.mesh.ports import Rights
from echomesh.topics import Matcher, covers, parse_filter

MAX_CLIENT_ID_BYTES: Final = 255

_BARE = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def parse_client_id(text: str) -> str:
    """The text, if it can be a client id; else a `UsageError` that says what can."""
    try:
        size = len(text.encode()) if len(text) <= MAX_CLIENT_ID_BYTES else len(text)
    except UnicodeEncodeError:
        size = 0
    if not (0 < size <= MAX_CLIENT_ID_BYTES and text.isprintable() and text == text.strip() and "*" not in text):
        raise UsageError(
            f"{short(text)} is not a client id: use 1 to {MAX_CLIENT_ID_BYTES} bytes of printable characters "
            "without '*', and no space at the ends"
        )
    return text


@dataclass(frozen=True)
class ClientRights:
    """What one client may do; nothing unless it is said."""

    environments: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    publishes_per_second: float | None = None
    admin: bool = False
    server: bool = False

    def may_use(self, environment: str) -> bool:
        """Whether the environment is one of the client's."""
        return environment in self.environments

    def may_publish(self, topic: str) -> bool:
        """Whether one of the publish filters matches the topic."""
        try:
            return bool(self._publishes.match(topic))
        except BadTopic:
            return False

    def may_subscribe(self, filter: str) -> bool:
        """Whether one of the subscribe filters covers the whole of this one.

        Several filters that cover it only together do not count: `a/*` is not allowed by `a/b` and `a/c`, whatever
        topics there are.
        """
        try:
            return any(covers(wide, filter) for wide in self.subscribe)
        except BadTopic:
            return False

    @cached_property
    def _publishes(self) -> Matcher[bool]:
        matcher: Matcher[bool] = Matcher()
        for filter in self.publish:
            matcher.add(filter, True)
        return matcher


EVERYTHING: Final = ClientRights(ENVIRONMENTS, ("**",), ("**",), admin=True, server=True)


@dataclass(frozen=True, slots=True)
class Client:
    """One entry of an access file."""

    client_id: str
    password: PasswordHash = field(repr=False)
    rights: ClientRights


class Access:
    """The clients of an access file as it was when it was read. It never changes."""

    def __init__(self, clients: Mapping[str, Client] | None = None) -> None:
        self._clients = MappingProxyType(dict(clients or {}))

    @classmethod
    def parse(cls, text: str, path: str = "access.toml", before: Access | None = None) -> Access:
        """The clients of the file's text; `BadAccessFile` names the place that is wrong and what is wanted there.

        Entries that are as they were `before` are the same objects.
        """
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadAccessFile(path, f"it is not TOML: {_first_line(error)}") from None
        try:
            clients = _clients(content)
        except _Wrong as wrong:
            raise BadAccessFile(path, str(wrong)) from None
        known = before._clients if before is not None else {}
        return cls({name: _same(known.get(name), client) for name, client in clients.items()})

    def get(self, client_id: str) -> Client | None:
        """The client, None for an unknown one."""
        return self._clients.get(client_id)

    def rights(self, client_id: str) -> ClientRights | None:
        """The client's rights, None for an unknown one."""
        client = self._clients.get(client_id)
        return None if client is None else client.rights

    def changed_since(self, before: Access) -> frozenset[str]:
        """The ids of clients that came, went, or have another entry."""
        names = self._clients.keys() | before._clients.keys()
        return frozenset(name for name in names if self._clients.get(name) != before._clients.get(name))

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)


class OpenAccess:
    """Everybody may everything: for connections of this machine to a server without an access file."""

    def verify(self, client_id: str, password: str | None, done: Callable[[Rights | None], None]) -> None:
        """Calls `done` at once, whatever the password."""
        done(self.rights(client_id))

    def rights(self, client_id: str) -> Rights | None:
        """All rights, for anything that can be a client id."""
        try:
            parse_client_id(client_id)
        except UsageError:
            return None
        return EVERYTHING

    def mark(self, client_id: str) -> bytes:
        """Nothing about them can change."""
        return b"open"


def open_access() -> OpenAccess:
    """Lets everybody in, with all rights. Only ever for loopback."""
    return OpenAccess()


class _Wrong(Exception):
    """What is wrong, with its place."""


def _same(before: Client | None, client: Client) -> Client:
    return before if before is not None and before == client else client


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] if isinstance(error, ValueError) else "it is nested too deeply"


def _clients(content: dict[str, Any]) -> dict[str, Client]:
    for key in content:
        if key != "clients":
            raise _Wrong(f"unknown key {_name(key)}: entries are tables such as [clients.shop]")
    entries = content.get("clients", {})
    if not isinstance(entries, dict):
        raise _Wrong("clients wants tables such as [clients.shop]")
    return {name: _client(name, entry) for name, entry in entries.items()}


def _client(name: str, entry: object) -> Client:
    place = f"clients.{_name(name)}"
    try:
        parse_client_id(name)
    except UsageError as error:
        raise _Wrong(f"{place}: {error}") from None
    if not isinstance(entry, dict):
        raise _Wrong(f"{place} wants a table: [{place}]")
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if (read := _KEYS.get(key)) is None:
            raise _Wrong(_unknown(place, name, key, value))
        values[key] = read(f"{place}.{key}", value)
    if "password" not in values:
        raise _Wrong(f"{place} has no password; set one with: echomesh clients passwd {_name(name)}")
    return Client(name, values.pop("password"), ClientRights(**values))


def _unknown(place: str, name: str, key: str, value: object) -> str:
    if isinstance(value, dict):
        return (
            f"{place} has no tables; a client id with a dot stands in quotes: [clients.{json.dumps(f'{name}.{key}')}]"
        )
    close = difflib.get_close_matches(key[:80], _KEYS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it may be {', '.join(_KEYS)}"
    return f"{place} has an unknown key {_name(key)}: {hint}"


def _name(key: str) -> str:
    if _BARE.fullmatch(key):
        return key
    return json.dumps(key if len(key) <= 80 else f"{key[:80]}...")


def _password(place: str, value: object) -> PasswordHash:
    # What stands there may be a password itself, and is never shown.
    if not isinstance(value, str):
        raise _Wrong(f"{place} wants the text of a password hash")
    try:
        return PasswordHash.parse(value)
    except UsageError as error:
        raise _Wrong(f"{place}: {error}") from None


def _texts(place: str, value: object, example: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Wrong(f'{place} wants a list of texts, such as ["{example}"]')
    return value


def _environments(place: str, value: object) -> tuple[str, ...]:
    found = _texts(place, value, ENVIRONMENTS[0])
    for name in found:
        if name not in ENVIRONMENTS:
            raise _Wrong(f"{place} has {short(name)}: an environment is {', '.join(ENVIRONMENTS)}")
    return tuple(name for name in ENVIRONMENTS if name in found)


def _filters(place: str, value: object) -> tuple[str, ...]:
    spelled = []
    for number, text in enumerate(_texts(place, value, "orders/**")):
        try:
            spelled.append(parse_filter(text))
        except BadTopic as error:
            raise _Wrong(f"{place}[{number}]: {error}") from None
    return tuple(dict.fromkeys(spelled))


def _rate(place: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1e9:
        raise _Wrong(f"{place} wants a number above 0, such as 5000")
    return float(value)


def _flag(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"{place} wants true or false")
    return value


_KEYS: Final[dict[str, Callable[[str, object], object]]] = {
    "password": _password,
    "environments": _environments,
    "publish": _filters,
    "subscribe": _filters,
    "publishes_per_second": _rate,
    "admin": _flag,
    "server": _flag,
}
