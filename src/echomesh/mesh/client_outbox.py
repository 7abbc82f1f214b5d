"""What a client has asked and is not answered yet, and the bytes in which it asks."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from echomesh.errors import FrameTooLarge, MeshError, UsageError
from echomesh.frames import framed
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Body, Hello, Server
from echomesh.mesh.client_events import Happening, Refused
from echomesh.mesh.client_wire import publish_body
from echomesh.mesh.codes import Command
from echomesh.native.mesh_client import Flight
from echomesh.topics import parse_topic

_AROUND: Final = 1 << 10  # what a publish has besides its event, at the most, but for the client's id


class State(Enum):
    """Where a client is with its server."""

    DOWN = "down"
    GREETING = "greeting"
    UP = "up"
    LEAVING = "leaving"


class Asked(Struct):
    """Any other request; with `again`, it is asked again when the connection breaks before its answer."""

    token: Any
    command: Command
    body: Any
    again: bool = True
    resumes: bool = False  # a subscription that was made before, on the new connection


class Outbox:
    """Requests by their seq, in order; they are sent at once while the session is up, else when it is up again."""

    def __init__(self, hello: Hello, max_frame: int) -> None:
        self.hello = hello
        self.state = State.DOWN
        self.session_id = ""
        self.flight = Flight(self._body, parse_topic, 0)
        """The publishes, and all bytes that are to be sent."""
        self._sent = 0.0
        self._number = 0
        self._pending: dict[str, Asked] = {}
        self._limit(max_frame)

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet, publishes included."""
        return len(self._pending) + self.flight.publishing

    def publish(self, topic: str, event: bytes, token: Any, server: Server | None = None) -> None:
        """Publishes an event, encoded; `Stored` or `Refused` will name the token."""
        self.flight.publish(token, topic, event, server)

    def request(self, command: Command, body: Body | None, token: Any, *, again: bool = True) -> None:
        """Asks for anything else; the body's ClientId and SessionId are filled in. `Answered` or `Refused` will name
        the token. `UsageError` for what can't be told.
        """
        try:
            protocol.encode_value(body)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise UsageError(f"{command.name} can't be sent: {error}") from None
        self._ask(Asked(token, command, body, again))

    def give_up(self, error: MeshError) -> list[Happening]:
        """Fails all that waits for an answer."""
        asked, self._pending = self._pending, {}
        failed: list[Happening] = [Refused(self._landed(seq), error) for seq, _ in self.flight.seqs()]
        return failed + [Refused(each.token, error) for each in asked.values()]

    def withdraw(self, unwanted: Callable[[Any], bool]) -> None:
        """Forgets requests whose token is not wanted any more, so that they are not sent again."""
        for seq, token in self.flight.seqs():
            if unwanted(token):
                self.flight.forget(seq)
        self._pending = {seq: asked for seq, asked in self._pending.items() if not unwanted(asked.token)}

    def take_output(self, now: float) -> bytes:
        """What is to be sent now."""
        out = self.flight.take()
        if out:
            self._sent = now
        return out

    def _limit(self, frame_bytes: int) -> None:
        self.flight.most = frame_bytes - _AROUND - len(self.hello.client_id.encode())

    def _ground(self) -> None:
        """Nothing leaves for now, and what was about to is not sent."""
        self.flight.up = False
        self.flight.clear()

    def _landed(self, seq: str) -> Any:
        """The token of a publish that is in flight no more."""
        found = self.flight.forget(seq)
        return None if found is None else found[0]

    def _send_publishes(self) -> list[Happening]:
        """Sends all publishes under a new session; refuses those that its server would not take."""
        most = self.flight.most
        too_large = self.flight.resume()
        return [Refused(self._landed(seq), FrameTooLarge(size, most)) for seq, size in too_large]

    def _ask(self, asked: Asked) -> None:
        seq = self._next_seq()
        self._pending[seq] = asked
        if self.state is State.UP:
            self._send_asked(seq, asked)

    def _next_seq(self) -> str:
        # No seq of a publish begins so.
        self._number += 1
        return f"q{self._number:x}"

    def _send(self, command: Command, seq: str, body: Body | None) -> None:
        self.flight.write(framed(protocol.encode(command, seq, body)))

    def _send_asked(self, seq: str, asked: Asked) -> None:
        body: Any = asked.body
        if body is not None:
            body.client_id, body.session_id = self.hello.client_id, self.session_id
        self._send(asked.command, seq, body)

    def _body(self, topic: str, server: Server | None) -> bytes:
        return publish_body(self.hello.client_id, self.session_id, topic, server)
