"""What Delta wants to know of a file's columns, out of its footer: no row is read again."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow.parquet as pq

_COLUMNS: Final = 32  # as Delta does: what stands behind is seldom asked for
_TEXT: Final = 256


def stats(footer: pq.FileMetaData) -> str:
    """Rows, and for the first plain columns the least and the largest value and how many are null, as JSON."""
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if "." in name or len(nulls) == _COLUMNS:
            continue  # parts of maps, lists and structures
        groups: list[Any] = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        bounds = [group for group in groups if group.has_min_max]
        if not bounds or any(not group.has_min_max and group.num_values for group in groups):
            continue
        low, high = _low(min(group.min for group in bounds)), _high(max(group.max for group in bounds))
        if low is not None and high is not None:
            least[name], largest[name] = low, high
    return json.dumps(
        {"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls},
        separators=(",", ":"),
    )


def _low(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value)
    return value[:_TEXT] if isinstance(value, str) else _plain(value)


def _high(value: Any) -> Any:
    if isinstance(value, datetime):
        # Stated in milliseconds, and never below what is there.
        return _time(value + timedelta(microseconds=-value.microsecond % 1000))
    return (value if len(value) <= _TEXT else None) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    return value.isoformat() if isinstance(value, date) else None


def _time(value: datetime) -> str:
    text = value.astimezone(UTC) if value.tzinfo else value
    return text.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}" + ("Z" if value.tzinfo else "")
