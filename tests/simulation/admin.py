"""A client that asks its server for bridges until it has them."""

from __future__ import annotations

from echomesh.errors import BridgeExists
from echomesh.mesh.bodies import AddBridge, Hello, RemoveBridge
from echomesh.mesh.client_events import Answered, Happening, Refused
from echomesh.mesh.codes import PORT, Command
from tests.simulation.client import Client
from tests.simulation.clock import Clock
from tests.simulation.network import Network


class Admin(Client):
    """Wants bridges to these servers."""

    def __init__(
        self, clock: Clock, network: Network, server: str, hello: Hello, others: list[str], topics: list[str] | None
    ) -> None:
        super().__init__(clock, network, server, hello)
        self.others = others
        self.missing = set(others)
        self._topics = topics

    def begin(self) -> None:
        for other in sorted(self.missing):
            self._ask(other)

    def _ask(self, other: str) -> None:
        self.core.request(Command.ADD_BRIDGE_REQUEST, AddBridge(other, PORT, topics=self._topics), ("add", other))
        self.flush_soon()

    def remake(self, other: str) -> None:
        """Ends the bridge, and makes it again."""
        if other not in self.missing:
            self.clock.note(self.name, f"removes its bridge to {other}")
            self.missing.add(other)
            self.core.request(Command.REMOVE_BRIDGE_REQUEST, RemoveBridge(other, PORT), ("remove", other))
            self.flush_soon()

    def happened(self, what: Happening) -> None:
        if not isinstance(what, Answered | Refused):
            return
        task, other = what.token
        error = what.error if isinstance(what, Refused) else None
        self.clock.note(self.name, f"asked to {task} its bridge to {other}: {error!r}")
        if task == "remove":
            self._ask(other)
        elif error is None or isinstance(error, BridgeExists):
            self.missing.discard(other)
        else:
            self.later(0.3, lambda: self._ask(other))
