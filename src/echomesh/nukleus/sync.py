"""The controller for threads; `echomesh.nukleus.Controller` is the same with `await`."""

from __future__ import annotations

import dataclasses
import os
import time
from types import TracebackType
from typing import TypeVar

from echomesh.errors import BadFrame, BusyError, CommandRefused, CommandTimeout, FileGone, Lapped, NukleusGone
from echomesh.native.broadcast import Receiver
from echomesh.nukleus import commands
from echomesh.nukleus.commands import RESPONSES, Message, Referring, correlation_of, decode, encode
from echomesh.nukleus.control import ControlFile
from echomesh.nukleus.directory import Directory, check_name
from echomesh.nukleus.links import open_bell
from echomesh.nukleus.locks import identity, turn

_LOOK_S = 0.1
_ROOM_S = 0.001

# An ERROR carries no reason: these are the possible ones.
_HINTS: dict[type[Message], str] = {
    commands.Capture: "it is captured already, or its ring can't be made (disk full, permission)",
    commands.Uncapture: "it is not captured",
    commands.Route: "it is routed already, or has not captured this nukleus (CAPTURE comes first, on its side)",
    commands.Unroute: "it is not routed",
    commands.Bind: "it must be both captured and routed first",
    commands.Unbind: "that is no bind reference",
    commands.Prepare: "it must be both captured and routed first",
    commands.Unprepare: "that is no prepare reference",
    commands.Connect: "that is no prepare reference, or the destination's ring is full",
}

R = TypeVar("R", bound=Message)


class Controller:
    """Sends commands to a nukleus and waits for its answers; one may be shared by threads.

    with Controller("echo") as echo:
        echo.capture("client")
    """

    def __init__(
        self, nukleus: str, *, directory: str | os.PathLike[str] | Directory | None = None, timeout: float = 5.0
    ) -> None:
        self.nukleus = check_name(nukleus)
        self.timeout = timeout
        self._directory = directory if isinstance(directory, Directory) else Directory(directory)
        self._place = self._directory.place(nukleus)
        self._check_alive()
        self._control = self._attach()

    def _attach(self) -> ControlFile:
        try:
            control = ControlFile.open(self._place.control)
        except FileGone:
            raise NukleusGone(self.nukleus, str(self._directory.root)) from None
        bell = open_bell(self._place)
        if bell is not None:
            control.commands.connect_reader(bell)
        return control

    def capture(self, source: str, *, timeout: float | None = None) -> None:
        """Makes the nukleus read streams from `source`."""
        self.call(commands.Capture(0, check_name(source)), timeout)

    def uncapture(self, source: str, *, timeout: float | None = None) -> None:
        """Makes it read that source no more; its streams are reset."""
        self.call(commands.Uncapture(0, check_name(source)), timeout)

    def route(self, destination: str, *, timeout: float | None = None) -> None:
        """Makes the nukleus write streams to `destination`, which must have captured it."""
        self.call(commands.Route(0, check_name(destination)), timeout)

    def unroute(self, destination: str, *, timeout: float | None = None) -> None:
        """Makes it write to that destination no more; its streams are reset."""
        self.call(commands.Unroute(0, check_name(destination)), timeout)

    def bind(self, source: str, reference: int = 0, *, timeout: float | None = None) -> int:
        """Makes it accept streams of `source`, and gives the reference that they must name."""
        return self._reference(commands.Bind(0, check_name(source), reference), timeout)

    def unbind(self, reference: int, *, timeout: float | None = None) -> None:
        """Makes it accept streams for a bind reference no more."""
        self.call(commands.Unbind(0, reference), timeout)

    def prepare(self, destination: str, reference: int, *, timeout: float | None = None) -> int:
        """Makes it ready to initiate streams to a bind reference of `destination`, and gives the reference for that."""
        return self._reference(commands.Prepare(0, check_name(destination), reference), timeout)

    def unprepare(self, reference: int, *, timeout: float | None = None) -> None:
        """Ends a prepare reference."""
        self.call(commands.Unprepare(0, reference), timeout)

    def connect(self, reference: int, *, timeout: float | None = None) -> int:
        """Makes it initiate a stream for a prepare reference, and gives the stream's id."""
        return self._reference(commands.Connect(0, reference), timeout)

    def counters(self) -> dict[str, int]:
        """The nukleus's counters, by label."""
        return {label: value for _, label, value in self._control.counters().list()}

    def _reference(self, command: Message, timeout: float | None) -> int:
        answer = self.call(command, timeout)
        assert isinstance(answer, Referring)
        return answer.reference

    def call(self, command: Message, timeout: float | None = None) -> Message:
        """Sends any command and gives its response, or raises what kept it from coming.

        The command's correlation id is replaced by a fresh one.
        """
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        self._check_alive()
        if not self._control.commands.closed and self._restarted(self._control):
            self._control = self._attach()
        control = self._control
        command = dataclasses.replace(command, correlation=control.commands.next_correlation_id())
        listening = control.receiver()
        self._send(control, command, deadline, limit)
        answer = self._await(control, command, listening, deadline, limit)
        if isinstance(answer, commands.Refused):
            raise CommandRefused(self.nukleus, command, _HINTS.get(type(command), ""))
        if answer.code != commands.RESPONSE | command.code:
            raise BadFrame(f"{self.nukleus} answered {command} with {answer}")
        return answer

    def _send(self, control: ControlFile, command: Message, deadline: float, limit: float) -> None:
        ring, body = control.commands, encode(command)
        while True:
            try:
                with turn(self._place.command_lock, max(0.0, deadline - time.monotonic())):
                    ring.heal()
                    if ring.write(command.code, body):
                        return
            except BusyError as error:
                raise CommandTimeout(self.nukleus, command, limit, str(error)) from None
            except FileGone:
                raise NukleusGone(self.nukleus, str(self._directory.root)) from None
            self._check_alive(control)
            if time.monotonic() >= deadline:
                raise CommandTimeout(self.nukleus, command, limit, "its command ring stays full: is it stopped?")
            time.sleep(_ROOM_S)

    def _await(
        self, control: ControlFile, command: Message, listening: Receiver, deadline: float, limit: float
    ) -> Message:
        while True:
            try:
                while (response := listening.receive()) is not None:
                    if correlation_of(response[1]) == command.correlation:
                        return decode(*response, RESPONSES)
            except Lapped:
                raise CommandTimeout(self.nukleus, command, limit, "its answer was overwritten by others") from None
            left = deadline - time.monotonic()
            if left <= 0:
                raise CommandTimeout(self.nukleus, command, limit, "is it stopped, or busy in its handler?")
            if not listening.wait(min(left, _LOOK_S)):
                self._check_alive(control)

    def _check_alive(self, control: ControlFile | None = None) -> None:
        gone = not self._place.path.is_dir() or self._directory.dead(self.nukleus)
        if gone or (control is not None and self._restarted(control)):
            raise NukleusGone(self.nukleus, str(self._directory.root))

    def _restarted(self, control: ControlFile) -> bool:
        return identity(self._place.control) != control.mapping.identity

    def close(self) -> None:
        """Lets go of the nukleus's files."""
        self._control.commands.close()

    def __enter__(self) -> Controller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
