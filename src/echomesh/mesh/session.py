"""A session: one client, one environment, one purpose, for as long as its connection lives."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.delivery import Delivery

if TYPE_CHECKING:
    from echomesh.log.staging import StageWriter
    from echomesh.mesh.bodies import Hello
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.limits import Rate
    from echomesh.mesh.link import Link
    from echomesh.mesh.ports import Rights


_numbers = count()


class Session:
    """Who is at the other end of a connection, and what it may do."""

    def __init__(self, session_id: str, hello: Hello, rights: Rights, connection: Connection, batch: int) -> None:
        self.id = session_id
        self.number = next(_numbers)
        """Which of two is the newer one."""
        self.client_id = hello.client_id
        self.environment = hello.environment
        self.purpose = Purpose(hello.purpose)
        self.is_server = hello.is_server
        self.rights = rights
        self.connection = connection
        self.rate: Rate | None = None
        self.may: dict[str, str] = {}
        """Topics that were published to before, in their one spelling, by the name that the client uses."""
        self.stages: dict[str, StageWriter] = {}
        self.beginning = 0
        """Stages that are being begun, and not among those yet."""
        self.gone: set[str] = set()
        """Topics that a newer session took over: late acknowledgements of them are no mistake."""
        self.allowed: frozenset[Command] | None = None
        """The only commands that a session with a ticket may give; None for all."""
        self.link: Link | None = None
        """Set when a server is at the other end."""
        self.delivery = Delivery(self, connection.core, batch)

    def __repr__(self) -> str:
        return f"Session({self.client_id!r}, {self.environment}, {self.purpose.name.lower()})"
