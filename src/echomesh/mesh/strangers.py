"""Connections that have not said who they are: what they cost together is bounded, whatever they send."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection


class Strangers:
    """Connections without a session, the oldest first, and the bytes that each of them has the server keep."""

    def __init__(self, most_bytes: int) -> None:
        self.kept_bytes = 0
        self._most_bytes = most_bytes
        self._there: dict[Connection, None] = {}
        self._kept: dict[Connection, int] = {}
        """Those that have sent part of something, in the order in which they began."""

    def __len__(self) -> int:
        return len(self._there)

    def add(self, connection: Connection) -> None:
        """A connection came in."""
        self._there[connection] = None

    def forget(self, connection: Connection) -> None:
        """It has a session, or will never have one."""
        self._there.pop(connection, None)
        self.kept_bytes -= self._kept.pop(connection, 0)

    def make_room(self) -> bool:
        """The one that has said nothing for longest goes; False when all of them are about to have a session."""
        oldest = next((stranger for stranger in self._there if not stranger.checking), None)
        if oldest is not None:
            self._end(oldest)
        return oldest is not None

    def keeps(self, connection: Connection, size: int) -> None:
        """So much is kept for it now. When that is too much for all together, those go that began first.

        A client says HELLO in one go, so the ones that have been at it for longest are not clients.
        """
        if connection not in self._there:
            return
        self.kept_bytes += size - self._kept.get(connection, 0)
        if size:
            self._kept[connection] = size
        else:
            self._kept.pop(connection, None)
        while self.kept_bytes > self._most_bytes:
            self._end(next((stranger for stranger in self._kept if not stranger.checking), connection))

    def _end(self, connection: Connection) -> None:
        self.forget(connection)
        connection.abort()
