"""`parse_json`: payloads as columns, and what could not be read with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from echomesh.errors import UsageError
from echomesh.spark.columns import TYPES
from echomesh.spark.pipelines.json_schema import JsonSchema, Rule, parse_schema, read_schema
from echomesh.spark.pipelines.mismatch import mismatch

Schema: TypeAlias = str | Path | StructType | JsonSchema | Mapping[str, Any]

PREFIX: Final = "event_"  # of a column of the event, where a field of the payload has its name
_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt"
_OF_THE_DATA: Final = ("data", "datacontenttype", "dataschema")


@dataclass(frozen=True)
class Parsed:
    """The rows that fit, with a column for each field of the payload; and the others, with their reason."""

    good: DataFrame
    bad: DataFrame


def parse_json(frame: DataFrame, schema: Schema) -> Parsed:
    """Reads the JSON in `data` by a schema: Spark's (a StructType, or "id long, amount double") or a JSON Schema.

    `good` has the fields of the payload instead of `data`, beside the other columns of the event; where both have one
    of the same name, the event's is called `event_<name>`. `bad` has the events as they came, with a column `reason`.
    """
    if "data" not in frame.columns:
        raise UsageError(f"parse_json reads the column 'data', and there is {', '.join(frame.columns)}")
    wanted = schema_of(schema)
    names = [*frame.columns, _PARSED]
    # Behind a generator Spark parses once, however often the result is asked for.
    parsed = frame.select("*", F.explode(F.array(payload(wanted))).alias(_PARSED)).select(*names)
    fits = valid(wanted, F.col(_PARSED))
    return Parsed(_good(parsed.where(fits), wanted.type), bad_rows(parsed.where(~fits), reason(wanted, F.col(_PARSED))))


def schema_of(schema: Schema) -> JsonSchema:
    """Any schema as one that rows can be checked by."""
    if isinstance(schema, JsonSchema):
        return schema
    if isinstance(schema, StructType):
        return _of_spark(schema)
    if isinstance(schema, Path):
        return read_schema(schema)
    if isinstance(schema, Mapping) or schema.lstrip().startswith("{"):
        return parse_schema(schema)
    if schema.endswith(".json"):
        return read_schema(schema)
    try:
        found = StructType.fromDDL(schema)
    except ParseException as error:
        raise UsageError(f"{schema!r} is no schema: write 'id long, amount double' ({_first(error)})") from None
    if not isinstance(found, StructType):
        raise UsageError(f"{schema!r} names one type, not columns: write 'id long, amount double'")
    return _of_spark(found)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0].partition(" SQLSTATE")[0].rstrip(".")


def _has(name: str, value: Column) -> Column:
    return value.getField(name).isNotNull()


def _of_spark(schema: StructType) -> JsonSchema:
    rules = [
        Rule(partial(_has, field.name), f"field {field.name} is missing")
        for field in schema.fields
        if not field.nullable
    ]
    fields = [StructField(field.name, field.dataType, True) for field in schema.fields]
    return JsonSchema(StructType(fields), tuple(rules))


def payload(schema: JsonSchema) -> Column:
    """The parsed payload of a row; a field besides has the text of what does not fit."""
    fields = StructType([*schema.type.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col("data").cast("string"), fields, options)


def valid(schema: JsonSchema, parsed: Column) -> Column:
    """Whether a row fits; never null."""
    fits = F.col("data").isNotNull() & parsed.isNotNull() & parsed.getField(_CORRUPT).isNull()
    for rule in schema.rules:
        fits = fits & rule.holds(parsed)
    if schema.closed:
        fits = fits & (F.size(_others(schema)) == 0)
    return F.coalesce(fits, F.lit(False))


def reason(schema: JsonSchema, parsed: Column) -> Column:
    """Why a row does not fit; of one that does, it says nothing sensible."""
    found = F.when(F.col("data").isNull(), F.lit("there is no data"))
    found = found.when(parsed.isNull() | parsed.getField(_CORRUPT).isNotNull(), mismatch(schema.type))
    for rule in schema.rules:
        found = found.when(~rule.holds(parsed), F.lit(rule.says))
    if schema.closed:
        found = found.when(F.size(_others(schema)) > 0, F.concat(F.lit("unknown field "), _others(schema)[0]))
    return found.otherwise(F.lit("it does not fit the schema"))


def _others(schema: JsonSchema) -> Column:
    known = F.array(*(F.lit(field.name) for field in schema.type.fields))
    return F.array_except(F.coalesce(F.json_object_keys(F.col("data").cast("string")), F.array()), known)


def _good(rows: DataFrame, schema: StructType) -> DataFrame:
    fields = {field.name.lower() for field in schema.fields}
    kept = [name for name in rows.columns if name not in (*_OF_THE_DATA, _PARSED)]
    events = [F.col(name).alias(f"{PREFIX}{name}") if name.lower() in fields else F.col(name) for name in kept]
    return rows.select(*events, *(F.col(_PARSED).getField(field.name).alias(field.name) for field in schema.fields))


def bad_rows(rows: DataFrame, why: Column) -> DataFrame:
    """Events as they came, with their reason."""
    first = [name for name in ("data", "topic", "offset") if name in rows.columns]
    others = [name for name in TYPES if name in rows.columns and name not in first]
    return rows.select(*first, why.alias("reason"), *others)
