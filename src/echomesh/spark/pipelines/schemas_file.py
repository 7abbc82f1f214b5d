"""`schemas.toml`: which payloads have which JSON Schema, by topic or by `dataschema`.

[order]
topics = "orders/**"            # topics or filters, with commas between them
dataschema = "urn:shop:order"   # or what events say of themselves; it counts more
file = "order.json"             # beside this file
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from echomesh.errors import BadTopic, UsageError
from echomesh.spark.pipelines.json_schema import JsonSchema, read_schema
from echomesh.spark.pipelines.parse import Parsed, bad_rows, parse_json, payload, reason, valid
from echomesh.topics import parse_filter

_KEYS: Final = ("topics", "dataschema", "file")


@dataclass(frozen=True)
class Assigned:
    """A schema, and which events it is for."""

    name: str
    schema: JsonSchema
    topics: tuple[str, ...]
    dataschema: str | None


class Schemas(Mapping[str, Assigned]):
    """The schemas of a file by name. An event has the first that its `dataschema` names, else the first by topic."""

    def __init__(self, assigned: Mapping[str, Assigned], where: str) -> None:
        self._assigned = dict(assigned)
        self.where = where

    def __getitem__(self, name: str) -> Assigned:
        return self._assigned[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._assigned)

    def __len__(self) -> int:
        return len(self._assigned)

    def name_of(self) -> Column:
        """The name of the schema of a row; null when it has none."""
        found = F.when(F.lit(False), F.lit(""))
        for each in self.values():
            if each.dataschema is not None:
                found = found.when(F.col("dataschema") == each.dataschema, F.lit(each.name))
        for each in self.values():
            if each.topics:
                found = found.when(_any_of(each.topics), F.lit(each.name))
        return found

    def parse(self, frame: DataFrame, name: str) -> Parsed:
        """The rows of one schema, as `parse_json` reads them."""
        if name not in self:
            raise UsageError(f"{self.where} has no schema {name}: there is {', '.join(self) or 'none'}")
        return parse_json(frame.where(self.name_of() == name), self[name].schema)

    def validate(self, frame: DataFrame) -> Parsed:
        """Events as they came: `good` are those that fit their schema or have none, `bad` have their reason."""
        named = frame.withColumn("_schema", self.name_of())
        why = F.when(F.lit(False), F.lit(""))
        for number, each in enumerate(self.values()):
            mine, parsed = F.col("_schema") == each.name, F.col(f"_parsed_{number}")
            # Behind a generator Spark parses once, however often the result is asked for.
            named = named.select("*", F.explode(F.array(F.when(mine, payload(each.schema)))).alias(f"_parsed_{number}"))
            why = why.when(mine & ~valid(each.schema, parsed), reason(each.schema, parsed))
        judged = named.select(*frame.columns, F.explode(F.array(why)).alias("_reason"))
        good = judged.where(F.col("_reason").isNull()).drop("_reason")
        return Parsed(good, bad_rows(judged.where(F.col("_reason").isNotNull()), F.col("_reason")))


def read_schemas(path: str | Path) -> Schemas:
    """The schemas of a `schemas.toml`; `UsageError` names what is wrong with it."""
    file = Path(path)
    try:
        found = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    if not found:
        raise UsageError(f'{path} has no schema: write [order], topics = "orders/**" and file = "order.json"')
    return Schemas({name: _assigned(file, name, entry) for name, entry in found.items()}, str(path))


def _assigned(file: Path, name: str, entry: Any) -> Assigned:
    def wrong(why: str) -> UsageError:
        return UsageError(f"{file}: [{name}] {why}")

    if not isinstance(entry, dict):
        raise wrong("is no table: schemas stand below a name in brackets")
    if unknown := [key for key in entry if key not in _KEYS]:
        raise wrong(f"has {unknown[0]!r}: there are {', '.join(_KEYS)}")
    for key in entry:
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise wrong(f"{key} has to be text")
    if "file" not in entry or len(entry) < 2:
        raise wrong('needs file = "order.json", and topics or dataschema')
    try:
        topics = tuple(parse_filter(part.strip()) for part in entry.get("topics", "").split(",") if part.strip())
    except BadTopic as error:
        raise wrong(str(error)) from None
    return Assigned(name, read_schema(file.parent / entry["file"]), topics, entry.get("dataschema"))


def _any_of(filters: tuple[str, ...]) -> Column:
    # With a slash in front all segments are alike.
    topic = F.concat(F.lit("/"), F.col("topic"))
    return reduce(Column.__or__, (topic.rlike(pattern(each)) for each in filters))


def pattern(filter: str) -> str:
    """A regular expression for the topics which the filter matches, each with a slash in front."""
    text = ""
    for segment in parse_filter(filter).split("/"):
        if segment == "**":
            text += r"(/[^/]+)*"
        else:
            text += "/" + (r"[^/]+" if segment == "*" else re.escape(segment))
    return f"^{text}$"
