"""The ways on which events came over bridges, by the log of their first publication."""

from __future__ import annotations

from typing import Final

from echomesh.mesh.bodies import Server
from echomesh.mesh.ports import StatePort
from echomesh.mesh.refusal import failed
from echomesh.native.log_record import Records

MOST_HOPS: Final = 255  # servers on the way of an event

HERE: Final = b"\0" * 24
"""The origin of an event that was meant for this server alone: it goes over no bridge."""


class Ways:
    """Remembers, for each origin, the servers that its events last came through, the nearest last."""

    def __init__(self, state: StatePort, most: int) -> None:
        self._state = state
        self._most = most
        self._ways: dict[bytes, list[Server]] = {}
        for key, value in state.items(("way",)):
            if isinstance(value, list):
                self._ways[bytes.fromhex(key[1])] = [Server(urn, port) for urn, port in value]

    def came(self, origin: bytes, way: list[Server]) -> None:
        """Events of this origin came on this way; they are refused when it would be one origin too many."""
        if origin not in self._ways and len(self._ways) >= self._most:
            raise failed(
                f"events of {len(self._ways)} servers are here, and those of another one are not taken: let this "
                "server have more (max_origins)"
            )
        if self._ways.get(origin) != way:
            self._ways[origin] = way
            self._state.put(("way", origin.hex()), [[server.urn, server.port] for server in way])

    def way(self, origin: bytes) -> list[Server]:
        """The way on which events of this origin came here."""
        return self._ways.get(origin, [])

    def of(self, records: Records) -> tuple[list[Server], int]:
        """The way of the first of these records, and how many came on the same; -1 when all did."""
        if not self._ways:
            return [], -1
        origins = [None if origin is None else origin[:16] for _, _, origin, _ in records]
        first = origins[0]
        count = next((i for i, origin in enumerate(origins) if origin != first), -1)
        return (self._ways.get(first, []) if first is not None else []), count
