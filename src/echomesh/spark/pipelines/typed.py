"""Payloads as columns beside the event's own, by the schemas of a file; what does not fit has its reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from echomesh.errors import SchemaChanged
from echomesh.spark.columns import TYPES
from echomesh.spark.pipelines.json_schema import read_schema
from echomesh.spark.pipelines.parse import payload, reason, valid
from echomesh.spark.pipelines.schemas_file import Assigned, Schemas, read_schemas

REASON: Final = "_reason"
PREFIX: Final = "payload_"  # of a field of the payload, where the event has a column of its name
_OTHERS: Final = ("date", "reason", *TYPES)


def schemas_of(path: str | Path) -> Schemas:
    """The schemas of a `schemas.toml`, or one JSON Schema for every topic."""
    if Path(path).suffix == ".json":
        return Schemas({"payload": Assigned("payload", read_schema(path), ("**",), None)}, str(path))
    return read_schemas(path)


class Typed:
    """Rows of topics with the fields of their payloads."""

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self.fields = dict(self._columns())

    def _columns(self) -> Iterator[tuple[str, StructField]]:
        found: dict[str, StructField] = {}
        for each in self.schemas.values():
            for field in each.schema.type.fields:
                known = found.setdefault(field.name.lower(), field)
                if known.dataType != field.dataType:
                    was, now = known.dataType.simpleString(), field.dataType.simpleString()
                    raise SchemaChanged(field.name, was, f"{now} by the schema {each.name}", self.schemas.where)
        for lower, field in found.items():
            yield f"{PREFIX}{field.name}" if lower in _OTHERS else field.name, field

    def judged(self, rows: DataFrame) -> DataFrame:
        """The rows with a column for each field of any payload, and the reason why one does not fit, or null."""
        why: Column = F.when(F.lit(False), F.lit(""))
        found = rows.select("*", self.schemas.name_of().alias("_schema"))
        for number, each in enumerate(self.schemas.values()):
            mine, parsed = F.col("_schema") == each.name, F.col(f"_parsed_{number}")
            # Behind a generator Spark parses once, however often the result is asked for.
            found = found.select("*", F.explode(F.array(F.when(mine, payload(each.schema)))).alias(f"_parsed_{number}"))
            why = why.when(mine & ~valid(each.schema, parsed), reason(each.schema, parsed))
        found = found.select("*", F.explode(F.array(why)).alias(REASON))
        return found.select(*rows.columns, REASON, *(self._value(name).alias(name) for name in self.fields))

    def _value(self, name: str) -> Column:
        wanted = self.fields[name].name.lower()
        values = [
            F.col(f"_parsed_{number}").getField(field.name)
            for number, each in enumerate(self.schemas.values())
            for field in each.schema.type.fields
            if field.name.lower() == wanted
        ]
        return F.coalesce(*values)
