"""Connections that nobody wants: noise, half a message, the wrong password, or nothing at all."""

from __future__ import annotations

from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Hello
from echomesh.mesh.codes import Command
from tests.simulation.clock import Clock
from tests.simulation.network import End, Network, Owner


class Stranger:
    """Connects once, says something, and waits until the server has enough of it."""

    asleep = False

    def __init__(self, clock: Clock, network: Network, server: str) -> None:
        random = clock.random
        hello = framed(protocol.encode(Command.HELLO_REQUEST, "me", Hello("admin-s0", password="wrong")))
        self._says = random.choice(
            (b"", random.randbytes(40), b"\x00\x00\x00\x10" + random.randbytes(200), hello, hello[:30], hello + hello)
        )
        self._end: End | None = None
        network.dial("stranger", server, self._connected)

    def _connected(self, end: End | None) -> Owner | None:
        if end is None:
            return None
        self._end = end
        end.write(self._says)
        return self

    def received(self, data: bytes) -> None:
        """Whatever the answer is."""

    def lost(self) -> None:
        """The server has enough."""

    def writable(self, yes: bool) -> None:
        """It has no more to say."""
