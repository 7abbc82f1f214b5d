"""How many stages are open: each is a file that is being written, so there is a bound for one session and for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from echomesh.mesh.refusal import failed

if TYPE_CHECKING:
    from echomesh.mesh.session import Session

MOST_OF_SESSION: Final = 64


class OpenStages:
    """The sessions that have open stages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: set[Session] = set()

    def begin(self, session: Session) -> None:
        """The session begins another one, unless that is one too many."""
        if len(session.stages) + session.beginning >= MOST_OF_SESSION:
            raise failed(f"a session has at most {MOST_OF_SESSION} open stages: end some of them")
        if (there := sum(len(other.stages) + other.beginning for other in self._sessions)) >= self._most:
            raise failed(
                f"{there} stages are open on this server: try again when some are done, or let it have more "
                "(max_stages)"
            )
        session.beginning += 1
        self._sessions.add(session)

    def look(self, session: Session) -> None:
        """Something was done with a stage of the session, which may have been its last."""
        if not session.stages and not session.beginning:
            self._sessions.discard(session)

    def end(self, session: Session, beside: Callable[[Callable[[], object]], object]) -> None:
        """The session is over, and its stages are worth nothing; they are dropped beside the event loop."""
        self._sessions.discard(session)
        for writer in list(session.stages.values()):
            beside(writer.abort)
        session.stages.clear()
