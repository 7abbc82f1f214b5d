"""Offsets as PlannedStream.java hears and says them.

There may be ten thousand topics, and Spark hands the offsets of a batch to and fro five times. What was answered just
before is named by its number, and what is new is one text, which Spark's runner need not take apart or put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from echomesh.spark.offsets import Offsets

KEPT: Final = 3  # answers: the batch that is planned has two, and the next one may have been measured


class Answers:
    """What was answered last. Where nobody asks by number, in a session without the JAR, offsets go as they are."""

    def __init__(self) -> None:
        self.numbered = False
        self.last = 0
        self.kept: dict[int, Offsets] = {}
        self.reported: tuple[Any, ...] | None = None

    def hear(self, found: Any) -> Offsets:
        """The offsets that were said."""
        if isinstance(found, dict) and "answer" in found:
            return self.kept[found["answer"]]
        if isinstance(found, dict) and "offset" in found:
            self.numbered = True
            found = found["offset"]
        return Offsets.of(found)

    def say(self, offsets: Offsets, lost: int | None = None) -> dict[str, Any]:
        """An answer, which may be named from now on. With `lost` the log ends there, and nobody need ask where."""
        if not self.numbered:
            return offsets.json()
        self.last += 1
        self.kept[self.last] = offsets
        self.kept.pop(self.last - KEPT, None)
        said = {"answer": self.last} | self.text(offsets.json())
        return said if lost is None else said | {"lost": lost}

    def report(self, of: tuple[Any, ...], make: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """What is to be said of these, or that it is as before: Spark asks all the time while there is nothing new."""
        if self.numbered and of == self.reported:
            return {"same": True}
        made = self.text(make(*of))
        self.reported = of if self.numbered else None
        return made

    def text(self, said: dict[str, Any]) -> dict[str, Any]:
        """Something else that is said of offsets."""
        return {"text": msgspec.json.encode(said).decode()} if self.numbered else said
