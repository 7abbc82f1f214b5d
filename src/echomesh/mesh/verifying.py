"""Checking who somebody is: scrypt in threads for an event loop, or at once for a simulation.

A password that was right is remembered as a keyed hash, so that a client that comes back costs microseconds. It is
forgotten with the process, and is worth nothing once the client's password is another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from echomesh.errors import LoginBusy
from echomesh.mesh.access import Access, Client
from echomesh.mesh.passwords import DECOY, PasswordHash, usable
from echomesh.mesh.ports import Rights

CHECKS: Final = 2
QUEUE: Final = 256

_log = logging.getLogger(__name__)


class Memory:
    """Passwords that were right, one for each client, as hashes with a key that never leaves the process."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._right: dict[str, bytes] = {}

    def mark(self, client_id: str, stored: PasswordHash, password: bytes) -> bytes:
        """The keyed hash of a password for this client, as long as its stored hash is this one."""
        name = client_id.encode(errors="surrogatepass")
        made = hashlib.blake2b(key=self._key, digest_size=32)
        made.update(b"%d:%b%b%b" % (len(name), name, stored.salt, stored.key))
        made.update(password)
        return made.digest()

    def knows(self, client_id: str, mark: bytes) -> bool:
        """Whether that was right before."""
        return hmac.compare_digest(self._right.get(client_id, b""), mark)

    def add(self, client_id: str, mark: bytes, access: Access) -> None:
        """Remembers that it was right, and forgets clients that are gone."""
        self._right[client_id] = mark
        if len(self._right) > len(access):
            self._right = {name: kept for name, kept in self._right.items() if access.get(name) is not None}


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known before any scrypt: `known` means that the password was right before."""

    client: Client | None
    stored: PasswordHash = field(repr=False)
    password: bytes = field(repr=False)
    mark: bytes = field(repr=False)
    known: bool


class _Checked:
    """What both kinds share."""

    def __init__(self, access: Callable[[], Access], memory: Memory | None = None) -> None:
        self._access = access
        self._memory = memory if memory is not None else Memory()

    def rights(self, client_id: str) -> Rights | None:
        """The rights that are in force now."""
        return self._access().rights(client_id)

    def mark(self, client_id: str) -> bytes:
        """Stands for the client's entry: another one as soon as its password or its rights change."""
        client = self._access().get(client_id)
        if client is None:
            return b""
        entry = (client.client_id, client.password.salt, client.password.key, client.rights)
        return hashlib.blake2b(repr(entry).encode(), digest_size=16).digest()

    def _look(self, client_id: str, password: str | None) -> _Look | None:
        if (data := usable(password)) is None:
            return None
        client = self._access().get(client_id)
        stored = DECOY if client is None else client.password
        mark = self._memory.mark(client_id, stored, data)
        return _Look(client, stored, data, mark, self._memory.knows(client_id, mark))

    def _passed(self, client_id: str, look: _Look) -> Rights | None:
        # The entry may be another one than when the check began.
        access = self._access()
        client = access.get(client_id)
        if client is None or client.password != look.stored:
            return None
        self._memory.add(client_id, look.mark, access)
        return client.rights


class SyncAccess(_Checked):
    """Checks passwords on the spot, some 40 ms for each that is new: for simulations and tools.

    `access` gives the snapshot in force. Simulations of one process may share a `memory`, and so pay once for each
    password.
    """

    def verify(self, client_id: str, password: str | None, done: Callable[[Rights | None], None]) -> None:
        """Calls `done` at once."""
        look = self._look(client_id, password)
        right = look is not None and (look.known or look.stored.matches(look.password))
        done(self._passed(client_id, look) if look is not None and right else None)


class AsyncAccess(_Checked):
    """Checks passwords for an event loop: `CHECKS` at once in threads, `queue` wait, and beyond that it is `LoginBusy`.

    `access` gives the snapshot in force, as `lambda: file.access` does. Those who come with the same client id and
    password at the same time share one check. All methods are for the loop's thread.
    """

    def __init__(
        self,
        access: Callable[[], Access],
        loop: asyncio.AbstractEventLoop,
        *,
        queue: int = QUEUE,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(access, memory)
        self._loop = loop
        self._queue = queue
        self._threads = ThreadPoolExecutor(CHECKS, thread_name_prefix="echomesh-password")
        self._waiting: dict[bytes, list[Callable[[Rights | None], None]]] = {}

    @property
    def checking(self) -> int:
        """How many checks run or wait."""
        return len(self._waiting)

    def verify(self, client_id: str, password: str | None, done: Callable[[Rights | None], None]) -> None:
        """Calls `done` now or later, in the loop's thread; raises `LoginBusy`, and never calls it, when too many wait.

        Unknown clients cost the same as known ones.
        """
        look = self._look(client_id, password)
        if look is None:
            done(None)
        elif look.known and look.client is not None:
            done(look.client.rights)
        elif (waiting := self._waiting.get(look.mark)) is not None:
            waiting.append(done)
        elif len(self._waiting) >= CHECKS + self._queue:
            raise LoginBusy(len(self._waiting))
        else:
            self._waiting[look.mark] = [done]
            self._threads.submit(self._check, client_id, look)

    def close(self) -> None:
        """Ends the threads; whoever still waits gets no answer."""
        self._waiting.clear()
        self._threads.shutdown(cancel_futures=True)

    def _check(self, client_id: str, look: _Look) -> None:
        try:
            right = look.stored.matches(look.password)
        except (ValueError, MemoryError):
            _log.exception("a password could not be checked")
            right = False
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, client_id, look, right)

    def _settle(self, client_id: str, look: _Look, right: bool) -> None:
        rights = self._passed(client_id, look) if right else None
        for done in self._waiting.pop(look.mark, ()):
            self._loop.call_soon(done, rights)
