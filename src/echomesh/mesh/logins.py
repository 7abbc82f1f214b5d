"""Who a server is at others, where each bridge has a login of its own."""

from __future__ import annotations

from echomesh.mesh.bodies import Server
from echomesh.mesh.ports import Login


class LoginsInMemory:
    """Logins that end with the process."""

    def __init__(self) -> None:
        self._kept: dict[Server, Login] = {}

    def get(self, server: Server) -> Login | None:
        """The login of the bridge to this server, if it has one of its own."""
        return self._kept.get(server)

    def keep(self, server: Server, login: Login) -> None:
        """The bridge has this login from now on."""
        self._kept[server] = login

    def forget(self, server: Server) -> None:
        """There is no such bridge any more."""
        self._kept.pop(server, None)
