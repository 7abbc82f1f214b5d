"""Pipelines that come with echomesh, by name. Each is a module with `Options` and `make`.

`Options` is a frozen dataclass whose fields, made by `option`, are the options of `echomesh pipeline run NAME`; `make`
takes one and gives the `Pipeline`. One that has an end and no checkpoint has `start` instead, which does its work.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from echomesh.errors import UsageError
from echomesh.spark.pipelines.define import Pipeline

T = TypeVar("T")

_HELP: Final[Mapping[str, str]] = {
    "archive": "Topics to tables: every event once, in columns, with what can't be read beside it.",
    "windows": "Counts, rates, sizes and latencies a topic and window, to a table and to topics mesh/stats/**.",
    "latest": "The last event a key, as a table.",
    "alerts": "Events when a value is over a threshold, unusual, or missing, and when it is well again.",
    "replay": "A time range of an archive or log into another topic, at its old pace or faster.",
}


class Module(Protocol):
    """What the module of a ready pipeline has."""

    Options: type[Any]

    def make(self, options: Any) -> Pipeline:
        """The pipeline with these options."""


@dataclass(frozen=True)
class Field:
    """One option of a ready pipeline: `--name`, of the type of its field."""

    name: str
    kind: Any
    default: Any
    help: str
    metavar: str | None


def option(default: T, help: str, *, metavar: str | None = None) -> T:
    """A field of `Options` with its help. `None` as default: it need not be given."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar})


def names() -> dict[str, str]:
    """The ready pipelines that are there, with a sentence on each."""
    return {name: text for name, text in _HELP.items() if importlib.util.find_spec(f"{__name__}.{name}")}


def module(name: str) -> Module:
    """The module of a ready pipeline."""
    if name not in names():
        raise UsageError(f"there is no ready pipeline {name}: there is {', '.join(names()) or 'none'}")
    return cast("Module", importlib.import_module(f"{__name__}.{name}"))


def fields(options: type[Any]) -> list[Field]:
    """The options of a ready pipeline, out of its class."""
    import typing

    kinds = typing.get_type_hints(options)
    return [
        Field(each.name, kinds[each.name], each.default, each.metadata.get("help", ""), each.metadata.get("metavar"))
        for each in dataclasses.fields(options)
    ]
