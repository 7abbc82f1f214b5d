"""What the core of a server needs from outside: a log, somebody who knows who may what, a place for small state.

The asyncio shell brings the real ones, a simulation a log on a disk of its own and a clock that it turns by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from typing_extensions import Buffer

from echomesh.log.staging import Committed, StageWriter
from echomesh.log.stretch import Stretch
from echomesh.log.view import TopicName
from echomesh.mesh.bodies import Server
from echomesh.native.log_pieces import Pieces
from echomesh.native.log_record import Records


class Pending(Protocol):
    """Something that will be on disk: an append, or small state."""

    def done(self) -> bool:
        """Whether it is, or failed."""
        ...

    def result(self) -> object:
        """Raises what kept it from the disk."""
        ...


class Staging(Protocol):
    """Staged appends of a log."""

    def stage(self, writer: str, epoch: int, run: str, part: int) -> StageWriter:
        """Begins a stage."""
        ...

    def commit(
        self,
        writer: str,
        epoch: int,
        run: str,
        stages: list[str],
        *,
        sums: Sequence[tuple[int, int]] | None = None,
        republish: bool = False,
    ) -> Committed:
        """Makes stages part of their topics."""
        ...

    def abort(self, writer: str, epoch: int, run: str | None = None) -> None:
        """Drops the stages of an epoch."""
        ...


class LogPort(Protocol):
    """The topic log. Appends are answered in order; the shell then calls `MeshCore.settled`."""

    @property
    def log_id(self) -> bytes:
        """Names the data directory."""
        ...

    def append(self, topic: str, event: bytes, *, environment: str, origin: bytes | None = None) -> Pending:
        """Its result is the offset."""
        ...

    def append_many(
        self,
        topic: str,
        events: Sequence[Buffer] | Pieces,
        *,
        environment: str,
        origins: Sequence[bytes] | bytes | None = None,
    ) -> Pending:
        """Its result is the list of offsets."""
        ...

    def topics(self) -> list[TopicName]:
        """All topics of all environments."""
        ...

    @property
    def moves(self) -> int:
        """Another number as soon as a commit of stages became visible, in all of its topics at once."""
        ...

    def bounds(self, environment: str, topic: str) -> tuple[int, int] | None:
        """(earliest, end), None for a topic that is not there."""
        ...

    def read(self, environment: str, topic: str, offset: int, *, max_bytes: int, max_records: int = 1 << 40) -> Records:
        """Records from the offset on; `OffsetsLost` and `LogCorrupt` name what can't be had."""
        ...

    def stretch(self, environment: str, topic: str, offset: int, until: int, most: int) -> Stretch | None:
        """The same where they stand, unchecked; None where they have to be read."""
        ...

    @property
    def staging(self) -> Staging:
        """Staged appends; all of it waits for the disk, so call it `beside`."""
        ...

    def beside(self, work: Callable[[], object]) -> Pending:
        """Does work that waits for the disk, one after the other; then the shell calls `MeshCore.settled`."""
        ...

    def offset_at(self, environment: str, topic: str, time_ns: int) -> int:
        """The first offset that was appended at this time or later."""
        ...


class Rights(Protocol):
    """What one client may do."""

    @property
    def admin(self) -> bool:
        """Bridges and everybody's topics."""
        ...

    @property
    def server(self) -> bool:
        """May speak as a bridged server."""
        ...

    @property
    def publishes_per_second(self) -> float | None:
        """The limit, None for none."""
        ...

    def may_use(self, environment: str) -> bool:
        """Whether the environment is one of the client's."""
        ...

    def may_publish(self, topic: str) -> bool:
        """Whether the topic is within the client's publish filters."""
        ...

    def may_subscribe(self, filter: str) -> bool:
        """Whether all that the filter matches is within the client's subscribe filters."""
        ...


class AccessPort(Protocol):
    """Knows the clients."""

    def verify(self, client_id: str, password: str | None, done: Callable[[Rights | None], None]) -> None:
        """Calls `done`, now or later, with the client's rights; with None for an unknown one or a wrong password."""
        ...

    def rights(self, client_id: str) -> Rights | None:
        """The rights that are in force now."""
        ...

    def mark(self, client_id: str) -> bytes:
        """Stands for the client's entry: another one as soon as its password or its rights change."""
        ...


Login = tuple[str, str | None]
"""Who this server is at another one: a client id, and its password if it has one."""


class Logins(Protocol):
    """Where the logins of bridges are kept that were said with the bridge; nobody else may read them there."""

    def get(self, server: Server) -> Login | None:
        """The login of the bridge to this server, if it has one of its own."""
        ...

    def keep(self, server: Server, login: Login) -> None:
        """The bridge has this login from now on: on disk, or `OSError`."""
        ...

    def forget(self, server: Server) -> None:
        """There is no such bridge any more."""
        ...


class StatePort(Protocol):
    """Small durable state: values by key. It is all in memory; writing is behind."""

    def items(self, prefix: tuple[str, ...]) -> list[tuple[tuple[str, ...], object]]:
        """Everything whose key begins so."""
        ...

    def get(self, key: tuple[str, ...]) -> object | None:
        """The value, None for none."""
        ...

    def put(self, key: tuple[str, ...], value: object) -> None:
        """Written without waiting: it survives the end of the process, not yet a power cut."""
        ...

    def delete(self, key: tuple[str, ...]) -> None:
        """Forgets the key."""
        ...

    def flush(self) -> object:
        """Writes what was put; cheap when there is nothing. The shell does so in each turn, before output leaves."""
        ...

    def sync(self) -> Pending:
        """Done when all that was put before is on disk; the shell then calls `MeshCore.settled`."""
        ...
