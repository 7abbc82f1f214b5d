"""Keys of events: their subject, their topic, or a place in their payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomesh.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column

SUBJECT: Final = "subject"
TOPIC: Final = "topic"


def check_key(where: str, key: str) -> str:
    """The key as it is; `UsageError` when it is none."""
    return key if key in (SUBJECT, TOPIC) else check_path(where, key)


def check_path(where: str, path: str) -> str:
    """A place in a payload as it is; `UsageError` when it is none."""
    if not isinstance(path, str) or not path.startswith("$.") or len(path) < 3:
        raise UsageError(f"{where}: {path!r} is no place in a payload: write it as $.sensor.id")
    return path


def key_of(key: str) -> Column:
    """The column of a key; null for an event that has none."""
    from pyspark.sql import functions as F

    return F.col(key) if key in (SUBJECT, TOPIC) else text_at(key)


def text_at(path: str) -> Column:
    """What stands at a place of the payload, as text."""
    from pyspark.sql import functions as F

    return F.get_json_object(F.col("data").cast("string"), path)


def number_at(path: str) -> Column:
    """The number that stands at a place of the payload; null for anything else."""
    from pyspark.sql import functions as F

    number = text_at(path).try_cast("double")
    return F.when(~F.isnan(number) & (F.abs(number) != float("inf")), number)
