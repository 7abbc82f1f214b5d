"""Where commands come in and answers go out: the nukleus's end of its control file."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

from echomesh.errors import BusyError, DamagedError
from echomesh.nukleus.commands import Message, encode
from echomesh.nukleus.conductor import Conductor
from echomesh.nukleus.control import ControlFile
from echomesh.nukleus.links import sound
from echomesh.nukleus.locks import turn
from echomesh.nukleus.streams import Count

_log = logging.getLogger(__name__)

_COMMANDS_A_TURN = 64
_EMPTY_WAIT_S = 0.05


class Desk:
    """Hands commands to the conductor and its answers to all who listen."""

    def __init__(self, control: ControlFile, lock: Path, conductor: Conductor, count: Count) -> None:
        self._control = control
        self._commands = control.commands
        self._responses = control.transmitter()
        self._lock = lock
        self._conductor = conductor
        self._count = count

    def conduct(self) -> int:
        """Does some of the commands that are there, and tells how many."""
        if not self._commands.readable():
            return 0
        try:
            commands = self._commands.drain(_COMMANDS_A_TURN)
        except DamagedError as error:
            self._empty(error)
            return 1
        if not sound(self._commands):  # at once, before a writer goes on behind it
            self._empty("its records go beyond its tail")
        for code, body in commands:
            response = self._conductor.conduct(code, body)
            if response is None:
                self._count("commands without correlation")
                continue
            self._count("commands")
            self._respond(response)
        return len(commands)

    def tend(self) -> None:
        """Gives a sign of life, and puts right what dead controllers left in the command ring."""
        self._commands.heartbeat = time.time_ns() // 1_000_000
        if not sound(self._commands):
            self._empty("head and tail can't be true")
        if self._commands.blocked():
            with contextlib.suppress(BusyError), turn(self._lock, 0.0):
                self._commands.heal()

    def _respond(self, response: Message) -> None:
        body = encode(response)
        try:
            self._responses.transmit(response.code, body)
        except DamagedError as error:
            _log.warning("the responses are damaged and begun anew: %s", error)
            self._count("damaged rings")
            self._control.empty_responses()
            self._responses.transmit(response.code, body)

    def _empty(self, why: object) -> None:
        _log.warning("the command ring is damaged and emptied: %s", why)
        self._count("damaged rings")
        with contextlib.ExitStack() as held:
            with contextlib.suppress(BusyError):  # one who stopped with the lock must not stop us
                held.enter_context(turn(self._lock, _EMPTY_WAIT_S))
            self._control.empty_commands()
