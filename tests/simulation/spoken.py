"""Messages in words, for the trace of a run."""

from __future__ import annotations

from typing import Any

from echomesh.errors import BadMessage
from echomesh.frames import MAX_FRAME, Splitter
from echomesh.mesh import protocol
from echomesh.mesh.arrivals import Bundle
from echomesh.mesh.bodies import Ack, Deliver, Forward, Nack, Publish, Published, Subscribe
from echomesh.mesh.codes import Command
from tests.simulation.clock import Clock

SILENT = (Command.HEARTBEAT_REQUEST, Command.HEARTBEAT_RESPONSE, Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE)


class Spoken:
    """Writes down what goes one way over a connection."""

    def __init__(self, clock: Clock, who: str, arrow: str) -> None:
        self.clock = clock
        self.who = who
        self.arrow = arrow
        self._splitter = Splitter(MAX_FRAME)

    def heard(self, data: bytes) -> None:
        """Notes the messages that are whole now."""
        if not self.clock.tracing:
            return
        try:
            for payload in self._splitter.feed(data):
                message = protocol.decode(payload)
                if message.command not in SILENT:
                    self.clock.note(self.who, f"{self.arrow} {_words(message)}")
        except BadMessage as error:
            self.clock.note(self.who, f"{self.arrow} {error}")


def _words(message: protocol.Message) -> str:
    name = Command(message.command).name.removesuffix("_REQUEST").lower()
    if message.status:
        return f"{name} {message.seq}: {message.error} {message.description}"
    body: Any = protocol.body_of(message)
    match body:
        case Publish():
            what = f"{body.topic} for {body.urn}" if body.urn else body.topic
        case Published():
            what = f"at {body.offset}"
        case Deliver():
            what = f"{body.topic} {body.offset}+{len(body.cloud_events)}"
        case Forward():
            behind = Bundle(body, message.seq).behind
            what = f"{body.topic} {body.origin.hex()[:4]} {body.offset} to {behind} since {body.since}"
        case Ack():
            what = f"{body.topic} {body.first}..{body.offset}"
        case Nack():
            what = f"{body.topic} {body.offset}"
        case Subscribe():
            what = f"{body.topics} from {body.start} as {body.group or 'itself'}"
        case _:
            what = ""
    return f"{name} {message.seq} {what}"
