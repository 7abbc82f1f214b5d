"""Beacons and control messages that are almost right: every one of the protocol, changed by a seeded random."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from echomesh.data import wire
from echomesh.data.messages import Hello, Message
from echomesh.frames import LENGTH_BYTES, framed
from tests.faults.mesh_fuzz import NASTY, Fuzz, encode


class DataFuzz(Fuzz):
    """Spoils messages of the data plane as its base spoils those of the mesh."""

    def spoiled(self, examples: Sequence[Message]) -> bytes:
        """One of these messages, as a connection would carry it, with a little or a lot that is wrong."""
        random = self.random
        payload = self._payload(random.choice(examples))
        return framed(payload) if random.random() < 0.98 else self._misframed(payload)

    def beacon(self, hello: Hello) -> bytes:
        """A datagram."""
        if self.random.random() < 0.05:
            return self.random.randbytes(self.random.randrange(600))
        return self._payload(hello)

    def _payload(self, example: Message) -> bytes:
        random = self.random
        fields: Any = msgspec.msgpack.decode(wire.encode(example)[LENGTH_BYTES:])
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            self._spoil_body(fields, copy.deepcopy(random.choice(NASTY)))
        payload = encode(fields)
        return self._noise(payload) if random.random() < 0.1 else payload
