"""The formats of tables; without PySpark, since the command line knows them too."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Format: TypeAlias = Literal["delta", "iceberg", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
