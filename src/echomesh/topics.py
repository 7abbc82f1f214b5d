"""Topics: their names, filters over them, and finding every subscription that a topic matches.

A name is one or more segments with `/` between them (`orders/created`). A filter is a name in which `*`
stands for any one segment and `**` for any number of them, none included: `orders/**` matches `orders` and
`orders/eu/created`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, unquote_to_bytes

from echomesh.errors import BadTopic

MAX_TOPIC_BYTES: Final = 255

# A file name has at most 255 bytes; the rest is for the suffix of whoever makes files of it.
MAX_PART_BYTES: Final = 240
_WILDCARDS = frozenset(("*", "**"))
_ESCAPED_OR_ONE = re.compile("%[0-9A-F]{2}|.")

T = TypeVar("T", bound=Hashable)
_Values: TypeAlias = tuple[T, ...] | set[T]


def parse_topic(name: str) -> str:
    """The name in its one spelling (a leading `/` is dropped), or `BadTopic`.

    >>> parse_topic("/orders/created")
    'orders/created'
    """
    topic = _parse(name, "topic")
    if "*" in topic:
        raise BadTopic(name, "'*' belongs to filters; publish to one topic at a time", "topic")
    return topic


def parse_filter(name: str) -> str:
    """The filter in its one spelling, or `BadTopic`: filters that match the same topics are the same.

    >>> parse_filter("/orders/**/*/**")
    'orders/*/**'
    """
    return _parse_filter(_parse(name, "filter"))


@lru_cache(maxsize=4096)
def _parse_filter(name: str) -> str:
    segments = name.split("/")
    for segment in segments:
        if "*" in segment and segment not in _WILDCARDS:
            raise BadTopic(
                name,
                f"{segment!r} mixes '*' with other characters; '*' and '**' are whole segments",
                "filter",
            )
    return "/".join(_in_order(segments))


def matches(filter: str, topic: str) -> bool:
    """Whether the filter matches the topic. For many filters at once use `Matcher`.

    >>> matches("orders/*/created", "orders/eu/created"), matches("**/created", "created")
    (True, True)
    """
    return _glob(parse_filter(filter).split("/"), parse_topic(topic).split("/"))


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that `narrow` matches is matched by `wide` too.

    >>> covers("orders/**", "orders/*/created"), covers("orders/*", "orders/**")
    (True, False)
    """
    # A topic has a segment at least, so these two mean the same.
    inner = "*/**" if (spelled := parse_filter(narrow)) == "**" else spelled
    return _glob(_spread(parse_filter(wide)), _spread(inner))


def _glob(pattern: list[str], segments: list[str]) -> bool:
    # The usual glob search: on a mismatch only the last `**` takes one segment more: quadratic at worst.
    at = taken = 0
    again: tuple[int, int] | None = None
    while taken < len(segments):
        if at < len(pattern) and pattern[at] == "**":
            again = (at, taken)
            at += 1
        elif at < len(pattern) and (pattern[at] == segments[taken] or (pattern[at] == "*" and segments[taken] != "**")):
            at += 1
            taken += 1
        elif again is not None:
            again = (again[0], again[1] + 1)
            at, taken = again[0] + 1, again[1]
        else:
            return False
    return all(segment == "**" for segment in pattern[at:])


def _spread(filter: str) -> list[str]:
    # Of a run with a `**`, only how many segments it takes at least can be told: `*/*/**` is `**/*/**/*/**`. Written
    # so, a filter lies within another exactly if the other one takes it symbol by symbol, `**` by `**` alone.
    spread: list[str] = []
    for segment in reversed(filter.split("/")):
        in_gap = spread[-1:] == ["**"]
        spread.append(segment)
        if in_gap and segment == "*":
            spread.append("**")
    return spread[::-1]


def quote_topic(topic: str) -> str:
    """The topic as a relative path: one file name, with `%XX` for `/` and all but letters, digits and `-._~`.

    The rare name that becomes longer than a file name may be goes on in a subdirectory; each part but the
    last ends in a bare `%`, so that it is never mistaken for a topic. No part begins with a dot.

    >>> quote_topic("orders/créé")
    'orders%2Fcr%C3%A9%C3%A9'
    """
    escaped = _escape_dot(quote(parse_topic(topic), safe=""))
    if len(escaped) <= MAX_PART_BYTES:
        return escaped
    parts = [""]
    for piece in _ESCAPED_OR_ONE.findall(escaped):
        if len(parts[-1]) + len(piece) >= MAX_PART_BYTES:
            parts[-1] += "%"
            parts.append("")
        parts[-1] += piece if parts[-1] else _escape_dot(piece)
    return "/".join(parts)


def unquote_topic(path: str) -> str:
    """The topic of a path that `quote_topic` made; `BadTopic` for any other path, to show strange files."""
    *heads, last = path.split("/")
    escaped = "".join(head[:-1] for head in heads) + last
    try:
        topic = unquote_to_bytes(escaped).decode()
        if quote_topic(topic) == path:
            return topic
    except (UnicodeError, BadTopic):
        pass
    raise BadTopic(path, "no topic has this file name", "path of a topic")


class Matcher(Generic[T]):
    """Values by filter, found by topic: `match` costs as much with 100,000 filters as with 100.

    >>> matcher: Matcher[int] = Matcher()
    >>> matcher.add("orders/**", 1)
    True
    >>> matcher.add("*/created", 2)
    True
    >>> sorted(matcher.match("orders/created"))
    [1, 2]

    Filters without a wildcard are looked up as they are. The others are a trie by segment; a topic is
    followed down every branch at once, each node being looked at once a segment whatever the number of `**`.
    Results of recent topics are remembered, in bounded memory, until a change that concerns them. Not for use
    from several threads without a lock.
    """

    # A result of many values is quicker to find than to keep a thousand times.
    _REMEMBERED_VALUES: Final = 256

    def __init__(self, remembered: int = 1024) -> None:
        self._exact: dict[str, _Values[T]] = {}
        self._root: _Node[T] = _Node()
        self._remembered_max = remembered
        self._remembered: dict[str, frozenset[T]] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many pairs of filter and value there are."""
        return self._size

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Every pair of filter and value, in no particular order."""
        for name, values in self._exact.items():
            yield from ((name, value) for value in values)
        waiting: list[tuple[tuple[str, ...], _Node[T]]] = [((), self._root)]
        while waiting:
            segments, node = waiting.pop()
            yield from (("/".join(segments), value) for value in node.ends)
            yield from (("/".join((*segments, "**")), value) for value in node.rest)
            waiting.extend(((*segments, segment), child) for segment, child in node.items())

    def add(self, filter: str, value: T) -> bool:
        """Add a value under a filter; False if it was there already."""
        hash(value)  # a value that can't be kept must not leave nodes behind
        spelled = parse_filter(filter)
        if "*" not in spelled:
            values = self._exact.get(spelled, ())
            added = value not in values
            if added:
                self._exact[spelled] = _with(values, value)
        else:
            added = self._root.add(spelled.split("/"), value)
        if added:
            self._size += 1
            self._forget(spelled)
        return added

    def remove(self, filter: str, value: T) -> bool:
        """Remove a value from under a filter; False if it was not there."""
        spelled = parse_filter(filter)
        if "*" not in spelled:
            values = self._exact.get(spelled, ())
            removed = value in values
            if removed and len(values) > 1:
                self._exact[spelled] = _without(values, value)
            elif removed:
                del self._exact[spelled]
        else:
            removed = self._root.remove(spelled.split("/"), value)
        if removed:
            self._size -= 1
            self._forget(spelled)
        return removed

    def match(self, topic: str) -> frozenset[T]:
        """The values of all filters that match the topic, each once."""
        found = self._remembered.get(topic)
        if found is None:
            name = parse_topic(topic)
            found = self._search(name)
            # Under its one spelling alone, so that a change of that name finds it.
            if len(found) <= self._REMEMBERED_VALUES and name == topic and self._remembered_max:
                if len(self._remembered) >= self._remembered_max:
                    del self._remembered[next(iter(self._remembered))]
                self._remembered[topic] = found
        return found

    def _search(self, topic: str) -> frozenset[T]:
        # A node is reached over its parent alone, so no node is listed twice. Only the node of a `**` can be
        # met again, and it stays once it is reached: `any_depth` has those, `reached` the others.
        found: list[Iterable[T]] = [self._exact.get(topic, ())]
        any_depth: dict[_Node[T], None] = {}
        reached: list[_Node[T]] = []
        after = [self._root]
        for segment in (*topic.split("/"), None):
            for node in after:
                if node.rest:
                    found.append(node.rest)
                if node.any is not None:
                    any_depth[node.any] = None
            reached, after = after, []
            if segment is None or not (reached or any_depth):
                break
            for nodes in (reached, any_depth):
                for node in nodes:
                    if (below := node.get(segment)) is not None:
                        after.append(below)
                    if (below := node.one) is not None:
                        after.append(below)
        found.extend(node.ends for node in reached if node.ends)
        return frozenset().union(*found)

    def _forget(self, filter: str) -> None:
        if "*" in filter:
            self._remembered.clear()
        else:
            self._remembered.pop(filter, None)


class _Node(dict[str, "_Node[T]"], Generic[T]):
    """A place in the trie: what may come next, the values of the filter that ends here, and of it with `/**`.

    It is its own dictionary of segments: with many filters the time goes into fetching objects from memory.
    """

    __slots__ = ("any", "ends", "one", "rest")
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def __init__(self) -> None:
        self.ends: _Values[T] = ()
        self.rest: _Values[T] = ()
        # The children of `*` and `**` once more: every search asks for them. No topic has such a segment.
        self.one: _Node[T] | None = None
        self.any: _Node[T] | None = None

    def add(self, segments: list[str], value: T) -> bool:
        """Add a value below this node; False if it was there already."""
        rest = segments[-1] == "**"
        node = self
        for segment in segments[:-1] if rest else segments:
            node = node._child(segment)
        values = node.rest if rest else node.ends
        if value in values:
            return False
        if rest:
            node.rest = _with(values, value)
        else:
            node.ends = _with(values, value)
        return True

    def remove(self, segments: list[str], value: T) -> bool:
        """Remove a value below this node, and every node that nothing needs any more."""
        rest = segments[-1] == "**"
        node = self
        path = []
        for segment in segments[:-1] if rest else segments:
            path.append((node, segment))
            if (below := node.get(segment)) is None:
                return False
            node = below
        values = node.rest if rest else node.ends
        if value not in values:
            return False
        if rest:
            node.rest = _without(values, value)
        else:
            node.ends = _without(values, value)
        for parent, segment in reversed(path):
            if node or node.ends or node.rest:
                break
            parent._drop(segment)
            node = parent
        return True

    def _child(self, segment: str) -> _Node[T]:
        if (node := self.get(segment)) is None:
            # Filters share their segments: one copy of each is less to keep and to fetch.
            node = self[sys.intern(segment)] = _Node()
            if segment == "*":
                self.one = node
            elif segment == "**":
                self.any = node
        return node

    def _drop(self, segment: str) -> None:
        del self[segment]
        if segment == "*":
            self.one = None
        elif segment == "**":
            self.any = None


def _with(values: _Values[T], value: T) -> _Values[T]:
    # A tuple is a fifth of a set's size, and most filters have one value.
    if isinstance(values, set):
        values.add(value)
        return values
    return (*values, value) if len(values) < 8 else {*values, value}


def _without(values: _Values[T], value: T) -> _Values[T]:
    if isinstance(values, set):
        values.remove(value)
        return values
    return tuple(kept for kept in values if kept != value)


def _parse(name: str, what: str) -> str:
    if not isinstance(name, str):
        raise BadTopic(name, f"it is a {type(name).__name__}; give a str", what)
    parsed = name[1:] if name.startswith("/") else name
    if not parsed:
        raise BadTopic(name, "it is empty", what)
    if "\0" in parsed:
        raise BadTopic(name, "it has a NUL character, which ends a name in many programs; leave it out", what)
    if "//" in parsed or parsed[0] == "/" or parsed[-1] == "/":
        raise BadTopic(name, "it has an empty segment; write one '/' between segments and none at the end", what)
    try:
        size = len(parsed) if parsed.isascii() else len(parsed.encode())
    except UnicodeEncodeError:
        raise BadTopic(name, "it has lone surrogates, which UTF-8 can't carry", what) from None
    if size > MAX_TOPIC_BYTES:
        raise BadTopic(name, f"it has {size} bytes; at most {MAX_TOPIC_BYTES} are allowed", what)
    return parsed


def _in_order(segments: list[str]) -> list[str]:
    # In a run of wildcards only the number of `*` counts, and whether there is a `**`: that one goes last.
    ordered: list[str] = []
    pending = False
    for segment in segments:
        if segment == "**":
            pending = True
            continue
        if pending and segment != "*":
            ordered.append("**")
            pending = False
        ordered.append(segment)
    if pending:
        ordered.append("**")
    return ordered


def _escape_dot(text: str) -> str:
    return "%2E" + text[1:] if text.startswith(".") else text
