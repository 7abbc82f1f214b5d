"""Errors of the Spark source."""

from __future__ import annotations

from collections.abc import Iterable

from echomesh.errors.general import UsageError, short
from echomesh.errors.log import LogError


class BadOption(UsageError):
    """An option of a Spark source or sink that can't be used; `known` are those that can."""

    def __init__(self, option: str, reason: str, known: Iterable[str] = ()) -> None:
        self.option = option
        self.reason = reason
        self.known = tuple(known)
        listed = f". Options are: {', '.join(self.known)}" if self.known else ""
        super().__init__(f"option {short(option)} {reason}{listed}")


class DataLoss(LogError):
    """Events that a query should read, and that the log does not have: offsets `first` to `last` of `topic`."""

    def __init__(self, topic: str, first: int, last: int, reason: str) -> None:
        self.topic = topic
        self.first = first
        self.last = last
        self.reason = reason
        where = f"topic {short(topic)}, offsets {first} to {last}: " if topic else ""
        super().__init__(f"{where}{reason}. With the option failOnDataLoss=false the query goes on without them")


class BadTable(UsageError):
    """A path that holds no table of the wanted format, or rows that no table can take."""


class SchemaChanged(UsageError):
    """A column `field` that a table has with another type: `was` there, `now` in the rows."""

    def __init__(self, field: str, was: str, now: str, table: str) -> None:
        self.field = field
        self.was = was
        self.now = now
        super().__init__(
            f"column {short(field)} is {was} in the table {short(table)}, and {now} in the rows: cast it, give it "
            "another name, or write to another table. New columns are added, changed ones are not"
        )
