"""Which field of a payload is not what its schema says, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    MapType,
    StructType,
    TimestampType,
)

_WORDS: Final = (
    ("OBJECT", "an object"),
    ("ARRAY", "an array"),
    ("STRING", "text"),
    ("BOOLEAN", "true or false"),
    ("BIGINT", "a whole number"),
    ("DECIMAL", "a number"),
    ("DOUBLE", "a number"),
    ("FLOAT", "a number"),
)
_NULL: Final = "VOID"


def mismatch(schema: StructType) -> Column:
    """What is wrong with a payload that Spark could not read: the first field that is of another kind."""
    value = F.try_parse_json(F.col("data").cast("string"))
    kind = F.schema_of_variant(value)
    found = F.when(value.isNull(), F.lit("the data is no JSON"))
    found = found.when(
        ~kind.startswith("OBJECT"), F.concat(F.lit("the data is "), _word(kind), F.lit(", not an object"))
    )
    for path, name, wanted in _leaves(schema, "$", ""):
        found = _checked(found, value, path, name, wanted)
    return found.otherwise(F.lit("it does not fit the schema"))


def _leaves(schema: StructType, path: str, name: str) -> Iterator[tuple[str, str, DataType]]:
    for field in schema.fields:
        if "'" in field.name or "\\" in field.name:
            continue  # no path can name it
        at, called = f"{path}['{field.name}']", f"{name}.{field.name}".lstrip(".")
        yield at, called, field.dataType
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, at, called)


def _checked(found: Column, value: Column, path: str, name: str, wanted: DataType) -> Column:
    inner = F.try_variant_get(value, path, "variant")
    kind = F.schema_of_variant(inner)
    kinds, word = _kinds(wanted)
    there = inner.isNotNull() & (kind != _NULL)
    if kinds:
        other = ~F.coalesce(*(F.when(kind.startswith(each), True) for each in kinds), F.lit(False))
        found = found.when(there & other, F.concat(F.lit(f"field {name} is "), _word(kind), F.lit(f", not {word}")))
    if isinstance(wanted, StructType | MapType):
        return found
    as_wanted = F.try_variant_get(value, path, wanted.simpleString())
    return found.when(there & as_wanted.isNull(), F.lit(f"field {name} can't be read as {wanted.simpleString()}"))


def _kinds(wanted: DataType) -> tuple[tuple[str, ...], str]:
    if isinstance(wanted, StructType | MapType):
        return ("OBJECT",), "an object"
    if isinstance(wanted, ArrayType):
        return ("ARRAY",), "an array"
    if isinstance(wanted, BooleanType):
        return ("BOOLEAN",), "true or false"
    if isinstance(wanted, IntegralType):
        return ("BIGINT",), "a whole number"
    if isinstance(wanted, FractionalType):
        return ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT"), "a number"
    if isinstance(wanted, TimestampType | DateType):
        return ("STRING",), f"a {wanted.simpleString()}"
    return (), ""


def _word(kind: Column) -> Column:
    found = F.when(F.lit(False), F.lit(""))
    for prefix, word in _WORDS:
        found = found.when(kind.startswith(prefix), F.lit(word))
    return found.otherwise(kind)
