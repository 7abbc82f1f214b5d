"""Asking the participant of this machine whom it knows."""

from __future__ import annotations

import socket
from typing import Final

from echomesh.data import wire
from echomesh.data.config import DataOptions
from echomesh.data.link import refusal
from echomesh.data.messages import Credentials, InitLook, LookInit, LookInitFailed
from echomesh.data.starting import find
from echomesh.errors import NoParticipant

_ANSWER_S: Final = 5.0


def look(options: DataOptions) -> LookInit:
    """All participants that this machine's participant knows, with their publishers and subscribers."""
    address = find(options)
    if address is None:
        raise NoParticipant(
            f"no participant runs in {options.root}: the first publisher or subscriber starts one,"
            " and so does `echomesh participant`"
        )
    messages = wire.to_onlooker()
    try:
        with socket.create_connection(("127.0.0.1", address.port), _ANSWER_S) as connection:
            connection.sendall(wire.encode(InitLook(Credentials(address.cookie, options.domain))))
            while data := connection.recv(1 << 16):
                for message in messages.feed(data):
                    if isinstance(message, LookInitFailed):
                        raise refusal(message)
                    return message
    except OSError as error:
        raise NoParticipant(f"the participant does not answer: {error}") from None
    raise NoParticipant("the participant ended just now: try again")
