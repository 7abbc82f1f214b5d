"""How far a stream has come: JSON with the log's id and an offset for each topic, as Spark keeps it in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from echomesh.errors import DataLoss


@dataclass(frozen=True)
class Offsets:
    """The next offset of each topic, and of which log they are; how many events the batch that ends here is to have."""

    log_id: str
    topics: Mapping[str, int]
    events: int = field(default=0, compare=False)

    def json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        return {"log": self.log_id, "topics": self.topics} | ({"events": self.events} if self.events else {})

    @classmethod
    def of(cls, found: object) -> Offsets:
        """From what Spark kept."""
        log_id, topics = (found.get("log"), found.get("topics")) if isinstance(found, dict) else (None, None)
        # There may be ten thousand of them, several times in each batch.
        if isinstance(log_id, str) and isinstance(topics, dict) and set(map(type, topics.values())) <= {int}:
            return cls(log_id, topics)
        raise DataLoss("", 0, 0, "the checkpoint holds no offsets of echomesh")
