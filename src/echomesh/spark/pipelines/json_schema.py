"""JSON Schema, as far as it says something of columns: Spark types, and conditions that rows have to meet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from echomesh.errors import UsageError

Node: TypeAlias = Mapping[str, Any]

_SIMPLE: Final[Mapping[str, DataType]] = {
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
}
_FORMATS: Final[Mapping[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}
_SAYS_NOTHING: Final = {
    "$schema", "$id", "$comment", "$defs", "$anchor", "definitions", "title", "description", "default", "examples",
    "deprecated", "readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType",
}  # fmt: skip
_SHAPE: Final = {"type", "properties", "required", "items", "additionalProperties", "$ref", "anyOf", "oneOf"}
_RULES: Final[Mapping[str, tuple[Callable[[Column, Any], Column], str]]] = {
    "enum": (lambda value, known: value.isin([each for each in known if each is not None]), "is not one of {}"),
    "const": (lambda value, known: value == F.lit(known), "is not {}"),
    "minimum": (lambda value, bound: value >= bound, "is below {}"),
    "maximum": (lambda value, bound: value <= bound, "is above {}"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "is not above {}"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "is not below {}"),
    "minLength": (lambda value, bound: F.length(value) >= bound, "is shorter than {}"),
    "maxLength": (lambda value, bound: F.length(value) <= bound, "is longer than {}"),
    "pattern": (lambda value, pattern: value.rlike(pattern), "does not match {}"),
    "minItems": (lambda value, bound: F.size(value) >= bound, "has fewer items than {}"),
    "maxItems": (lambda value, bound: F.size(value) <= bound, "has more items than {}"),
}


@dataclass(frozen=True)
class Rule:
    """A condition of a row's payload, and what is said of a row that does not meet it."""

    holds: Callable[[Column], Column]  # of the parsed payload
    says: str


@dataclass(frozen=True)
class JsonSchema:
    """A schema of payloads: its columns, its rules, and which fields there may be besides, if that is said."""

    type: StructType
    rules: tuple[Rule, ...] = ()
    closed: bool = False  # no other fields


def read_schema(path: str | Path) -> JsonSchema:
    """The JSON Schema in a file."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise UsageError(f"the schema {path} can't be read: {error.strerror or error}") from None
    return parse_schema(text, str(path))


def parse_schema(schema: str | Node, where: str = "the JSON Schema") -> JsonSchema:
    """A JSON Schema of objects; `UsageError` names what in it can't become columns."""
    try:
        node = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}") from None
    if not isinstance(node, Mapping):
        raise UsageError(f"{where} is no JSON Schema: it has to be an object")
    reader = _Reader(node, where)
    kind, _ = reader.kind(node, "")
    if not isinstance(kind, StructType):
        raise UsageError(f'{where}: payloads have to be objects with "properties", which become columns')
    rules = tuple(reader.rules(node, "", lambda payload: payload))
    return JsonSchema(kind, rules, reader.resolved(node, "").get("additionalProperties") is False)


class _Reader:
    def __init__(self, root: Node, where: str) -> None:
        self.root = root
        self.where = where

    def wrong(self, path: str, reason: str) -> UsageError:
        return UsageError(f"{self.where}: {path or 'the whole'} {reason}")

    def resolved(self, node: Any, path: str) -> Node:
        """What a reference stands for, and what `anyOf` with null comes down to."""
        for _ in range(32):
            if not isinstance(node, Mapping):
                raise self.wrong(path, f"is {node!r}, not a schema")
            choices = node.get("anyOf") or node.get("oneOf")
            if choices:
                others = [each for each in choices if each.get("type") != "null"]
                if len(others) != 1:
                    raise self.wrong(path, "may be of several kinds, and a column has one")
                node = others[0]
            elif "$ref" in node:
                node = self._referred(str(node["$ref"]), path)
            else:
                return node
        raise self.wrong(path, "refers to itself: a column can't have itself within")

    def _referred(self, reference: str, path: str) -> Any:
        if not reference.startswith("#/"):
            raise self.wrong(path, f"refers to {reference}: only places in the same file can be read, as #/$defs/name")
        node: Any = self.root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise self.wrong(path, f"refers to {reference}, which is not there")
            node = node[name]
        return node

    def kind(self, given: Any, path: str, depth: int = 0) -> tuple[DataType, bool]:
        """The type of a column, and whether null is a value."""
        if depth > 32:
            raise self.wrong(path, "is nested too deeply, or within itself")
        node = self.resolved(given, path)
        if unknown := [key for key in node if key not in _SHAPE | _SAYS_NOTHING | _RULES.keys()]:
            raise self.wrong(path, f"has {unknown[0]!r}, which is not checked here: leave it out")
        name, nullable = self._name(node, path)
        nullable = nullable or (node is not given and "null" in json.dumps(given.get("anyOf", given.get("oneOf", ""))))
        if name == "object":
            return self._object(node, path, depth), nullable
        if name == "array":
            return ArrayType(self.kind(node.get("items", {"type": "string"}), f"{path}[]", depth + 1)[0]), nullable
        if name == "string":
            return _FORMATS.get(str(node.get("format")), StringType()), nullable
        return _SIMPLE[name], nullable

    def _name(self, node: Node, path: str) -> tuple[str, bool]:
        said = node.get("type")
        names = [said] if isinstance(said, str) else list(said or self._names_of_values(node, path))
        others = [name for name in names if name != "null"]
        if sorted(others) == ["integer", "number"]:
            others = ["number"]
        if len(others) != 1:
            raise self.wrong(path, f"is of {len(others)} types, and a column has one")
        if others[0] not in (*_SIMPLE, "object", "array"):
            raise self.wrong(path, f"has the type {others[0]!r}, which JSON Schema does not know")
        return str(others[0]), "null" in names

    def _names_of_values(self, node: Node, path: str) -> list[str]:
        if "properties" in node:
            return ["object"]
        values = node.get("enum", [node["const"]] if "const" in node else None)
        if not values:
            raise self.wrong(path, "has no type")
        kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
        return list(dict.fromkeys(kinds.get(type(value), "object") for value in values))

    def _object(self, node: Node, path: str, depth: int) -> DataType:
        fields = node.get("properties") or {}
        more = node.get("additionalProperties")
        if not fields and isinstance(more, Mapping):
            return MapType(StringType(), self.kind(more, f"{path}.*", depth + 1)[0])
        if not fields:
            return StringType()  # any object at all: its JSON
        inner = [
            StructField(name, self.kind(each, f"{path}.{name}".lstrip("."), depth + 1)[0])
            for name, each in fields.items()
        ]
        return StructType(inner)

    def rules(self, given: Any, path: str, reach: Callable[[Column], Column]) -> Iterator[Rule]:
        """The conditions of a value and of all within, as far as columns can tell."""
        node = self.resolved(given, path)
        for key, (holds, text) in _RULES.items():
            if key in node:
                says = f"field {path} {text.format(json.dumps(node[key]))}" if path else f"it {text.format(node[key])}"
                yield Rule(_rule(reach, holds, node[key]), says)
        fields = node.get("properties") or {}
        for name in node.get("required", ()):
            if name in fields and not self.kind(fields[name], name)[1]:
                yield Rule(
                    _present(reach, name, nested=bool(path)), f"field {path}.{name}".replace(" .", " ") + " is missing"
                )
        for name, each in fields.items():
            yield from self.rules(each, f"{path}.{name}".lstrip("."), _field(reach, name))
        if isinstance(node.get("items"), Mapping):
            for rule in self.rules(node["items"], f"{path}[]", lambda value: value):
                yield Rule(_all(reach, rule.holds), rule.says)


def _rule(reach: Callable[[Column], Column], holds: Callable[[Column, Any], Column], value: Any) -> Any:
    return lambda payload: F.coalesce(holds(reach(payload), value), F.lit(True))


def _present(reach: Callable[[Column], Column], name: str, *, nested: bool) -> Callable[[Column], Column]:
    # What is not there has no fields that could be missing.
    def holds(payload: Column) -> Column:
        there = reach(payload).getField(name).isNotNull()
        return there | reach(payload).isNull() if nested else there

    return holds


def _field(reach: Callable[[Column], Column], name: str) -> Callable[[Column], Column]:
    return lambda payload: reach(payload).getField(name)


def _all(reach: Callable[[Column], Column], holds: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda payload: F.coalesce(F.forall(reach(payload), holds), F.lit(True))
