"""Where offsets of a topic stand."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where offsets stand, for who reads files by other means; without a path where only a reader finds them."""

    start: int
    until: int
    path: str | None = None
    head: bytes = b""  # with which the file begins
    position: int = 0  # of a record, with the offset `first`, from which to go on to `start`
    first: int = 0
    shift: int = 0  # in a stage: what is added to its rows' numbers
    time_ns: int = -1  # in a stage: of all its rows
