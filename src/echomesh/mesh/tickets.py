"""Tickets: a part of a client's rights for an hour, for those whom it can't give its password, such as Spark's tasks.

A ticket says what it is good for, and is signed. The server keeps nothing of it, so tickets hold over its restart as
long as the key is the same. What is signed includes the client's entry in the access file: when that changes, the
tickets that were given before are worth nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from echomesh.errors import BadTopic, StorageError
from echomesh.mesh import checks
from echomesh.mesh.bodies import AskTicket, Ticket
from echomesh.mesh.codes import Command, ErrorCode, Purpose
from echomesh.mesh.ports import AccessPort, Rights
from echomesh.mesh.protocol import Message
from echomesh.mesh.refusal import failed, forbidden
from echomesh.topics import Matcher, covers, parse_filter

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection

LASTS_S: Final = 3600.0
KEY_BYTES: Final = 32
KEY_FILE: Final = "tickets.key"
LONGEST: Final = 48 << 10  # of a ticket: it has to fit into a HELLO
_PREFIX: Final = "emt1."
_SUM_BYTES: Final = 32

ALLOWED: Final = {
    "read": frozenset((Command.TOPICS_REQUEST, Command.OFFSETS_REQUEST, Command.FETCH_REQUEST)),
    "stage": frozenset((Command.STAGE_REQUEST,)),
}
ALWAYS: Final = frozenset((Command.HEARTBEAT_REQUEST, Command.HELLO_REQUEST, Command.DISCONNECT_REQUEST))
PURPOSES: Final = {"read": Purpose.SUBSCRIBE, "stage": Purpose.PUBLISH}


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """What a ticket is good for. Without filters, all that the client may."""

    client_id: str
    environment: str
    right: str
    filters: list[str] | None
    expires: float  # seconds since 1970


_pack: Final = msgspec.msgpack.Encoder().encode
_scope: Final = msgspec.msgpack.Decoder(Scope).decode


class Tickets:
    """Makes tickets, and knows its own again."""

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock

    def make(self, scope: Scope, mark: bytes) -> str:
        """The ticket's text; `mark` is that of the client's entry."""
        payload = _pack(scope)
        return _PREFIX + base64.urlsafe_b64encode(payload + self._sum(payload, mark)).decode().rstrip("=")

    def until(self) -> float:
        """When a ticket that is made now ends."""
        return self._clock() + LASTS_S

    def left(self, scope: Scope) -> float:
        """How many seconds it still holds."""
        return scope.expires - self._clock()

    def verify(self, text: str, client_id: str, access: AccessPort) -> tuple[Scope, Rights] | None:
        """What the ticket is good for, and the rights of its client now; None for one that is worth nothing."""
        raw = _raw(text)
        if raw is None:
            return None
        payload, given = raw[:-_SUM_BYTES], raw[-_SUM_BYTES:]
        right = hmac.compare_digest(given, self._sum(payload, access.mark(client_id)))
        rights = access.rights(client_id)
        if not right or rights is None:
            return None
        scope = _scope(payload)  # it is ours
        if scope.client_id != client_id or self.left(scope) <= 0:
            return None
        return scope, rights

    def _sum(self, payload: bytes, mark: bytes) -> bytes:
        return hmac.digest(self._key, len(mark).to_bytes(4, "big") + mark + payload, "sha256")


def _raw(text: str) -> bytes | None:
    if len(text) > LONGEST or not text.startswith(_PREFIX) or not text.isascii():
        return None
    body = text[len(_PREFIX) :]
    try:
        raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) > _SUM_BYTES else None


class TicketRights:
    """What a session with a ticket may do: what both the ticket and its client may."""

    admin = False
    server = False

    def __init__(self, scope: Scope, client: Rights, left_s: float) -> None:
        self.right = scope.right
        self.left_s = left_s
        self.allowed = ALLOWED[scope.right] | ALWAYS
        self._scope = scope
        self._client = client
        self._topics: Matcher[bool] = Matcher()
        for filter in scope.filters or ():
            self._topics.add(filter, True)

    @property
    def publishes_per_second(self) -> float | None:
        """The client's limit."""
        return self._client.publishes_per_second

    def may_use(self, environment: str) -> bool:
        """Whether it is the environment of the ticket, and still the client's."""
        return environment == self._scope.environment and self._client.may_use(environment)

    def may_publish(self, topic: str) -> bool:
        """Whether rows may be staged for the topic."""
        named = self._scope.filters is None or bool(self._topics.match(topic))
        return self.right == "stage" and named and self._client.may_publish(topic)

    def may_subscribe(self, filter: str) -> bool:
        """Whether what the filter matches may be read."""
        filters = self._scope.filters
        named = filters is None or any(covers(wide, filter) for wide in filters)
        return self.right == "read" and named and self._client.may_subscribe(filter)


def give(connection: Connection, message: Message, body: AskTicket, now: float) -> None:
    """Gives a session a ticket for a part of its rights."""
    core = connection.core
    session = checks.session_of(connection, body.client_id, body.session_id)
    if body.right not in ALLOWED:
        raise failed(f"Right is one of {', '.join(ALLOWED)}")
    filters = None if body.filters is None else [_filter(text) for text in body.filters]
    if filters == []:
        raise failed("Filters is empty: leave it out for all that you may, or name some")
    if body.right == "read":
        for filter in filters or ():
            if not session.rights.may_subscribe(filter):
                why = f"{session.client_id} may not read {filter}"
                raise forbidden(why, ErrorCode.UNAUTHORIZED_SUBSCRIBE)
    scope = Scope(session.client_id, session.environment, body.right, filters, core.tickets.until())
    made = core.tickets.make(scope, core.access_of(connection).mark(session.client_id))
    if len(made) > LONGEST:
        raise failed(f"a ticket for {len(filters or ())} filters is too long: name fewer, with * or **")
    connection.answer(message.command, message.seq, Ticket(made, LASTS_S))


def _filter(text: str) -> str:
    try:
        return parse_filter(text)
    except BadTopic as error:
        raise failed(str(error)) from None


def read_key(directory: str | os.PathLike[str]) -> bytes:
    """The key of a data directory, in a file that its owner alone may read; made when it is not there."""
    path = Path(directory) / KEY_FILE
    try:
        with suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) == KEY_BYTES:
                return key
        return _make_key(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _make_key(path: Path) -> bytes:
    key = os.urandom(KEY_BYTES)
    fresh = path.with_name(f"{KEY_FILE}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, key)
        os.fdatasync(handle)
    finally:
        os.close(handle)
    fresh.rename(path)
    return key
