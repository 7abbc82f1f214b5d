"""Whether rows fit a table: new columns make it wider, changed ones are refused by name."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from echomesh.errors import BadTable, SchemaChanged

_PLAIN: Final = (
    BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType,
    StringType, TimestampNTZType, TimestampType,
)  # fmt: skip
_PARTITIONS: Final = (ByteType, DateType, IntegerType, LongType, ShortType, StringType)


def open_schema(rows: StructType) -> StructType:
    """The same columns, all of which may be null, and without what Spark notes beside them."""
    made = _nullable(rows, "")
    assert isinstance(made, StructType)
    return made


def _nullable(kind: DataType, path: str) -> DataType:
    if isinstance(kind, StructType):
        fields = kind.fields
        lower = [field.name.lower() for field in fields]
        if twice := {name for name in lower if lower.count(name) > 1}:
            raise BadTable(f"columns {', '.join(sorted(twice))} stand twice in the rows: give them other names")
        prefix = f"{path}." if path else ""
        return StructType([StructField(f.name, _nullable(f.dataType, prefix + f.name), True) for f in fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType, f"{path}[]"), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType, f"{path} key"), _nullable(kind.valueType, f"{path} value"), True)
    if isinstance(kind, _PLAIN):
        return StringType() if isinstance(kind, StringType) else kind
    raise BadTable(f"column {path!r} is {kind.simpleString()}, which no table takes: cast it to another type")


def grown(table: StructType, rows: StructType, name: str) -> StructType | None:
    """The table's columns with those that only the rows have behind them; None when there are none such.

    `SchemaChanged` names the first column that is of another type.
    """
    fields = _merged(table, rows, name, "")
    return None if fields == table.fields else StructType(fields)


def _merged(table: StructType, rows: StructType, name: str, prefix: str) -> list[StructField]:
    fields = list(table.fields)
    known = {field.name.lower(): at for at, field in enumerate(fields)}
    for field in rows.fields:
        at = known.get(field.name.lower())
        if at is None:
            fields.append(field)
        else:
            fields[at] = _same(fields[at], field, name, prefix)
    return fields


def _same(was: StructField, now: StructField, name: str, prefix: str) -> StructField:
    path = prefix + was.name
    if was.name != now.name:
        raise SchemaChanged(path, f"spelled {was.name}", f"spelled {now.name}", name)
    kind, other = was.dataType, now.dataType
    if isinstance(kind, StructType) and isinstance(other, StructType):
        return StructField(was.name, StructType(_merged(kind, other, name, f"{path}.")), True)
    if kind != other:
        raise SchemaChanged(path, kind.simpleString(), other.simpleString(), name)
    return was


def check_partitions(schema: StructType, partition_by: list[str]) -> None:
    """Refuses columns that are no names for directories."""
    for name in partition_by:
        kind = schema[name].dataType
        if not isinstance(kind, _PARTITIONS):
            raise BadTable(
                f"a table can't be partitioned by {name!r}, which is {kind.simpleString()}: take a date or text"
            )
    if len(partition_by) == len(schema.fields):
        raise BadTable("a table needs a column beside those that it is partitioned by")
