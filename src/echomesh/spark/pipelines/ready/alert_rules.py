"""Rules of `alerts`: out of a TOML file or words of the command line, checked."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from echomesh.errors import BadTopic, UsageError
from echomesh.spark.pipelines.ready.common import span_ms
from echomesh.spark.pipelines.ready.keys import SUBJECT, check_key, check_path
from echomesh.topics import parse_filter

Kind = Literal["threshold", "zscore", "silence"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ALL: Final = ("kind", "topics", "key", "forget")
_OWN: Final[Mapping[Kind, tuple[str, ...]]] = {
    "threshold": ("field", "above", "below"),
    "zscore": ("field", "sigma", "window", "least"),
    "silence": ("after",),
}


@dataclass(frozen=True)
class Rule:
    """When an alert fires for a key, and for how long a key is remembered that has no events."""

    name: str
    kind: Kind
    topics: str
    key: str = SUBJECT
    field: str = ""
    above: float | None = None
    below: float | None = None
    sigma: float = 3.0
    window_ms: int = 300_000
    least: int = 10
    after_ms: int = 0
    forget_ms: int = 86_400_000


def rules(file: str | None, texts: Sequence[str]) -> list[Rule]:
    """The rules of a file and those in words; `UsageError` names what is wrong with one."""
    found = [*(_of_file(Path(file)) if file else ()), *map(_of_words, texts)]
    if not found:
        raise UsageError("there is no rule: give --rules FILE or --rule 'NAME KIND topics=... ...'")
    names = [rule.name for rule in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two rules have the name {twice}: give one of them another")
    return found


def _of_file(path: Path) -> list[Rule]:
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"the rules {path} can't be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    for name, each in tables.items():
        if not isinstance(each, dict):
            raise UsageError(f"{path}: {name} stands outside of a rule: rules are tables, as in [too-hot]")
    return [_rule(f"{path}: rule {name}", name, each) for name, each in tables.items()]


def _of_words(text: str) -> Rule:
    try:
        name, kind, *words = shlex.split(text)
        pairs = [word.split("=", 1) for word in words]
        given = dict(pairs)
    except ValueError:
        raise UsageError(
            f"--rule {text!r}: write NAME KIND and pairs as in topics=sensors/** field=$.celsius above=30"
        ) from None
    return _rule(f"rule {name}", name, {"kind": kind, **given})


def _rule(where: str, name: str, given: Mapping[str, Any]) -> Rule:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a name has letters, digits and _ . -, since it becomes a topic")
    kind = given.get("kind")
    if kind not in get_args(Kind):
        raise UsageError(f"{where}: kind is {kind!r}, and there are {', '.join(get_args(Kind))}")
    known = (*_ALL, *_OWN[cast("Kind", kind)])
    if unknown := next((key for key in given if key not in known), None):
        raise UsageError(f"{where}: {unknown} is unknown: a {kind} has {', '.join(known)}")
    read = _Reader(where, given)
    made = Rule(
        name,
        cast("Kind", kind),
        read.topics(),
        check_key(f"{where}: key", str(given.get("key", SUBJECT))),
        "" if kind == "silence" else check_path(f"{where}: field", str(given.get("field", ""))),
        read.number("above"),
        read.number("below"),
        read.number("sigma", 3.0) or 0.0,
        read.span("window", "5 minutes"),
        int(read.number("least", 10.0) or 0),
        read.span("after", None if kind == "silence" else "1 day"),
        read.span("forget", "1 day"),
    )
    _check(where, made)
    return made


def _check(where: str, rule: Rule) -> None:
    if rule.kind == "threshold" and (rule.above is None) == (rule.below is None):
        raise UsageError(f"{where}: give either above or below")
    if rule.kind == "zscore" and (rule.sigma <= 0 or rule.least < 2):
        raise UsageError(f"{where}: sigma is more than 0, and least at least 2")
    if rule.kind == "silence" and rule.forget_ms <= rule.after_ms:
        raise UsageError(f"{where}: forget has to be longer than after")


@dataclass(frozen=True)
class _Reader:
    where: str
    given: Mapping[str, Any]

    def topics(self) -> str:
        text = self.given.get("topics")
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{self.where}: topics are missing: give topics or filters, as in sensors/**")
        try:
            return ",".join(parse_filter(part.strip()) for part in text.split(","))
        except BadTopic as error:
            raise UsageError(f"{self.where}: {error}") from None

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.given.get(name, default)
        try:
            return None if value is None else float(value)
        except (TypeError, ValueError):
            raise UsageError(f"{self.where}: {name} is {value!r}, not a number") from None

    def span(self, name: str, default: str | None) -> int:
        value = self.given.get(name, default)
        if value is None:
            raise UsageError(f"{self.where}: {name} is missing: give a span as in '30 seconds'")
        return span_ms(f"{self.where}: {name}", value)
