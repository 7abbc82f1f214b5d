"""How many topics there are: each costs files and memory, so who makes ever new ones is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.mesh.codes import ErrorCode
from echomesh.mesh.refusal import Refusal, forbidden

if TYPE_CHECKING:
    from echomesh.mesh.cursors import Cursors
    from echomesh.mesh.options import MeshOptions
    from echomesh.mesh.ports import LogPort


class TopicCount:
    """The topics of each environment, those included whose first event is not on disk yet."""

    def __init__(self, log: LogPort, cursors: Cursors, options: MeshOptions) -> None:
        self._most = options.max_topics
        self._cursors = cursors
        self._most_cursors = options.max_cursors
        self._names: dict[str, set[str]] = {}
        for found in log.topics():
            self._names.setdefault(found.environment, set()).add(found.name)

    def admit(self, environment: str, topic: str) -> None:
        """Refuses a topic that would be one too many."""
        names = self._names.setdefault(environment, set())
        if topic not in names:
            if len(names) >= self._most:
                raise _refusal(f"{environment} has {len(names)} topics, and takes no others", "max_topics")
            if self._cursors.count >= self._most_cursors:
                # Each of its subscribers would get a place in it.
                raise _refusal(f"{self._cursors.count} places of subscribers in topics are kept", "max_cursors")
            names.add(topic)


def _refusal(why: str, option: str) -> Refusal:
    return forbidden(
        f"{why}: publish to a topic that is there, or let the server have more ({option})",
        ErrorCode.UNAUTHORIZED_PUBLISH,
    )
