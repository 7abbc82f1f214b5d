"""The conductor: does commands, keeps references, answers. Files are somebody else's, behind `Files`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from echomesh.errors import BadFrame, EchomeshError, UsageError
from echomesh.nukleus.commands import (
    COMMANDS,
    Aimed,
    Bind,
    Bound,
    Capture,
    Captured,
    Connect,
    Connected,
    Message,
    Named,
    Prepare,
    Prepared,
    Referring,
    Refused,
    Route,
    Routed,
    Unbind,
    Unbound,
    Uncapture,
    Uncaptured,
    Unprepare,
    Unprepared,
    Unroute,
    Unrouted,
    correlation_of,
    decode,
)

_log = logging.getLogger(__name__)


class Files(Protocol):
    """What commands do to files and streams; each raises an `EchomeshError` when it can't be done."""

    def capture(self, source: str) -> None:
        """Makes and reads the ring of a source."""

    def uncapture(self, source: str) -> None:
        """Resets the source's streams and reads it no more."""

    def route(self, destination: str) -> None:
        """Maps the ring to a destination."""

    def unroute(self, destination: str) -> None:
        """Resets the destination's streams and unmaps its ring."""

    def linked(self, nukleus: str) -> bool:
        """Whether that nukleus is both captured and routed."""

    def connect(self, reference: int, destination: str, destination_reference: int) -> int:
        """Initiates a stream and tells its id."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a bind or prepare reference stands for."""

    kind: type[Bind] | type[Prepare]
    nukleus: str
    reference: int


class Conductor:
    """A nukleus's commands, as a table from each kind to what does it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.references: dict[int, Reference] = {}
        self._next = {Bind: 2, Prepare: 1}
        self._table: dict[type[Message], Callable[[Message], Message]] = {
            Capture: self._named(files.capture, Captured),
            Uncapture: self._named(files.uncapture, Uncaptured),
            Route: self._named(files.route, Routed),
            Unroute: self._named(files.unroute, Unrouted),
            Bind: self._aimed(Bind, Bound),
            Unbind: self._dropped(Bind, Unbound),
            Prepare: self._aimed(Prepare, Prepared),
            Unprepare: self._dropped(Prepare, Unprepared),
            Connect: self._connect,
        }

    def conduct(self, code: int, body: bytes) -> Message | None:
        """Does a command as it came, whatever it is; None for a response when even its correlation id is unknown."""
        try:
            return self.do(decode(code, body, COMMANDS))
        except BadFrame as error:
            _log.debug("a command was refused: %s", error)
            correlation = correlation_of(body)
            return None if correlation is None else Refused(correlation)

    def do(self, command: Message) -> Message:
        """Does a command and gives its response, which is `Refused` when it can't be done."""
        try:
            return self._table[type(command)](command)
        except (EchomeshError, OSError) as error:
            _log.info("%s was refused: %s", command, error)
            return Refused(command.correlation)

    def bound(self, source: str, reference: int) -> bool:
        """Whether streams from that source may name that bind reference."""
        found = self.references.get(reference)
        return found is not None and found.kind is Bind and found.nukleus == source

    def _named(self, act: Callable[[str], None], response: type[Message]) -> Callable[[Message], Message]:
        def do(command: Message) -> Message:
            assert isinstance(command, Named)
            act(command.nukleus)
            return response(command.correlation)

        return do

    def _aimed(self, kind: type[Bind] | type[Prepare], response: type[Referring]) -> Callable[[Message], Message]:
        def do(command: Message) -> Message:
            assert isinstance(command, Aimed)
            if not self._files.linked(command.nukleus):
                raise UsageError(f"{command.nukleus} is not both captured and routed")
            reference = self._next[kind]
            self._next[kind] += 2
            self.references[reference] = Reference(kind, command.nukleus, command.reference)
            return response(command.correlation, reference)

        return do

    def _dropped(self, kind: type[Bind] | type[Prepare], response: type[Message]) -> Callable[[Message], Message]:
        def do(command: Message) -> Message:
            assert isinstance(command, Referring)
            self._known(kind, command.reference)
            del self.references[command.reference]
            return response(command.correlation)

        return do

    def _connect(self, command: Message) -> Message:
        assert isinstance(command, Referring)
        found = self._known(Prepare, command.reference)
        if not self._files.linked(found.nukleus):
            raise UsageError(f"{found.nukleus} is not both captured and routed")
        stream = self._files.connect(command.reference, found.nukleus, found.reference)
        return Connected(command.correlation, stream)

    def _known(self, kind: type[Bind] | type[Prepare], reference: int) -> Reference:
        found = self.references.get(reference)
        if found is None or found.kind is not kind:
            raise UsageError(f"{reference} is no {kind.title.lower()} reference")
        return found
