"""How many topics there are: each costs files and memory, so who makes ever new ones is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.mesh.codes import ErrorCode
from echomesh.mesh.refusal import forbidden

if TYPE_CHECKING:
    from echomesh.mesh.ports import LogPort


class TopicCount:
    """The topics of each environment, those included whose first event is not on disk yet."""

    def __init__(self, log: LogPort, most: int) -> None:
        self._most = most
        self._names: dict[str, set[str]] = {}
        for found in log.topics():
            self._names.setdefault(found.environment, set()).add(found.name)

    def admit(self, environment: str, topic: str) -> None:
        """Refuses a topic that would be one too many."""
        names = self._names.setdefault(environment, set())
        if topic not in names:
            if len(names) >= self._most:
                raise forbidden(
                    f"{environment} has {len(names)} topics, and takes no others: publish to one of them, or let the "
                    "server have more (max_topics)",
                    ErrorCode.UNAUTHORIZED_PUBLISH,
                )
            names.add(topic)
