"""What a node looks after each second: the access file, the disk, and the bridges."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from echomesh.log import AsyncTopicLog
from echomesh.mesh.access_file import AccessFile
from echomesh.mesh.server import MeshServer
from echomesh.mesh.state import StateFile
from echomesh.node.address import Address

PAUSE_S: Final = 1.0

_log = logging.getLogger(__name__)


class Watch:
    """Tells in the log what changed since the last look, once for each change."""

    def __init__(
        self, server: MeshServer, log: AsyncTopicLog, state: StateFile, access_file: AccessFile | None
    ) -> None:
        self._server = server
        self._log = log
        self._state = state
        self._access_file = access_file
        self._errors: dict[str, Exception | None] = {}
        self._linked: set[Address] = set()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                await self.look()
            except Exception:
                # Whatever it was, the next look may be at something else.
                _log.exception("a look at the access file, the disk and the bridges failed")

    async def look(self) -> None:
        """Looks once."""
        if self._access_file is not None:
            # It may be large, and on a slow disk.
            changed = await asyncio.to_thread(self._access_file.refresh, time.monotonic())
            if changed:
                self._server.reconsider(changed)
        self._look_at_disk()
        self._look_at_bridges()

    def _look_at_disk(self) -> None:
        for what, error in (("state", self._state.error), ("log", self._log.core.commits.refusal)):
            if error is not self._errors.get(what):
                self._errors[what] = error
                _log.log(logging.ERROR if error else logging.INFO, "%s: %s", what, error or "it is written again")

    def _look_at_bridges(self) -> None:
        bridges = self._server.core.bridges
        linked = {Address(link.peer.urn, link.peer.port) for link in bridges.links}
        for peer in sorted(linked - self._linked):
            _log.info("bridge to=%s state=up", peer)
        for peer in sorted(self._linked - linked):
            reasons = (bridge.why for server, bridge in bridges.bridges.items() if (server.urn, server.port) == peer)
            _log.warning(
                "bridge to=%s state=down reason=%r", peer, next(reasons, "it left") or "the connection was lost"
            )
        self._linked = linked
