"""The columns of the source and of the sink, as Spark sees them and as Arrow does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from echomesh.errors import UsageError

TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "time": TimestampType(),
    "id": StringType(),
    "source": StringType(),
    "type": StringType(),
    "subject": StringType(),
    "datacontenttype": StringType(),
    "dataschema": StringType(),
    "data": BinaryType(),
    "attributes": MapType(StringType(), StringType()),
}
SIZE: Final = "size"
"""The bytes of `data`, for who asks for it: far less to bring to Spark than the data is."""

_TO_ASK_FOR: Final[dict[str, DataType]] = {**TYPES, SIZE: LongType()}

ALWAYS: Final = frozenset({"topic", "offset", "timestamp", "id", "source", "type", "attributes"})
"""Columns that are never null: Spark does not ask row by row whether they are."""

_NEVER_NULL: Final = MapType(StringType(), StringType(), valueContainsNull=False)

_GIVEN: Final = ("offset", "timestamp")  # by the log, when an event is appended
SINK_COLUMNS: Final = tuple(name for name in TYPES if name not in _GIVEN)
"""What a write may have; `data` it must have."""


def fields(names: Iterable[str]) -> StructType:
    """The schema of these columns; `UsageError` for one that there is not."""
    return StructType([StructField(name, _type_of(name), name not in ALWAYS) for name in names])


def _type_of(name: str) -> DataType:
    try:
        return _TO_ASK_FOR[name]
    except KeyError:
        raise UsageError(f"no column {name!r}: there are {', '.join(_TO_ASK_FOR)}") from None


SOURCE_SCHEMA: Final = fields(TYPES)
"""What a read gives, unless `.schema()` asks for less."""


def chosen(schema: StructType) -> dict[str, bool]:
    """The columns that a schema asks for, and whether it has them as nullable; `UsageError` when the source has not got
    them so.
    """
    for field in schema.fields:
        wanted = _type_of(field.name)
        if field.dataType == _NEVER_NULL or not (field.nullable or field.name in ALWAYS):
            raise UsageError(f"column {field.name!r} can't be declared as never null: not every event has it")
        if field.dataType != wanted:
            raise UsageError(
                f"column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as it is, and cast it then"
            )
    return {field.name: field.nullable for field in schema.fields}
