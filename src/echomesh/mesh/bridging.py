"""Bridges: which there are, their links, and requests about them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from echomesh.errors import BadMessage, BadTopic
from echomesh.mesh import checks, protocol
from echomesh.mesh.bodies import AddBridge, Bridges, BridgeState, Hello, InSession, RemoveBridge, Server
from echomesh.mesh.codes import PORT, Command, ErrorCode, Status
from echomesh.mesh.dialed import Dialed
from echomesh.mesh.link import Link
from echomesh.mesh.refusal import MOST_NAME_BYTES, failed
from echomesh.mesh.routing import Routing
from echomesh.topics import parse_filter

if TYPE_CHECKING:
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.core import MeshCore
    from echomesh.mesh.ports import Login, Logins, Pending
    from echomesh.mesh.protocol import Message
    from echomesh.mesh.session import Session

ANSWERS: Final = (Command.ASYNC_MESSAGE_TO_CLIENT_ACK, Command.PUBLISH_MESSAGE_RESPONSE)
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
STORE_S: Final = 1.0

Asked = Callable[[str, ErrorCode], None]
"""Told once how it went to make a bridge: with nothing, or with what is wrong."""


class Bridge:
    """A bridge that this server was told to make; it dials until it is removed."""

    def __init__(self, server: Server, topics: list[str], login: Login | None = None) -> None:
        self.server = server
        self.topics = topics
        self.login = login
        """Who this server is there, where that was said with the bridge; to be kept with it."""
        self.dialed: Dialed | None = None
        self.dialing = False
        self.pause = FIRST_PAUSE_S
        self.due = 0.0
        self.why = ""
        self.removed = False
        self.asked: list[Asked] = []
        """Those who wait until it was connected once and is on disk: before that nobody may rely on it."""

    @property
    def key(self) -> tuple[str, ...]:
        """Where the state has it."""
        return ("bridge", self.server.urn, str(self.server.port))

    @property
    def active(self) -> bool:
        """Whether its link is up."""
        return self.dialed is not None and self.dialed.link is not None


class Bridging:
    """The bridges of a server. The shell connects those in `to_dial`, and says how that went."""

    def __init__(self, core: MeshCore, credentials: Callable[[Server], Login], logins: Logins) -> None:
        self.core = core
        self.credentials = credentials
        self.logins = logins
        self.bridges: dict[Server, Bridge] = {}
        self.links: list[Link] = []
        self.to_dial: list[Bridge] = []
        self.routing = Routing(self)
        self._heartbeat = self._stored = 0.0
        self._random = random.Random(core.log.log_id)
        for key, value in core.state.items(("bridge",)):
            topics = value if isinstance(value, list) else ["**"]
            server = Server(key[1], int(key[2]))
            self.bridges[server] = Bridge(server, [str(topic) for topic in topics])

    # Requests

    def add(self, connection: Connection, message: Message, body: AddBridge, now: float) -> None:
        """Makes a bridge: answered when the other server welcomed us and it is on disk here."""
        checks.admin(connection, body.client_id, body.session_id)
        server = _address(body.urn, body.port)
        topics, login = self._filters(body.topics), _login(body)
        bridge = self.bridges.get(server)
        if bridge is not None and not (bridge.asked and (bridge.topics, bridge.login) == (topics, login)):
            raise failed(f"there is a bridge to {server.urn}:{server.port} already", ErrorCode.BRIDGE_EXISTS)
        if self.core.is_here(server):
            raise failed("a server is not bridged to itself", ErrorCode.INVALID_BRIDGE)
        if bridge is None:
            bridge = self.bridges[server] = Bridge(server, topics, login)
            self._dial(bridge)
        bridge.asked.append(self._asked(connection, message, bridge))
        connection.begin(message)

    def _asked(self, connection: Connection, message: Message, bridge: Bridge) -> Asked:
        where = f"{bridge.server.urn}:{bridge.server.port}"

        def asked(why: str, error: ErrorCode) -> None:
            if not connection.finish(message.seq):
                return
            if why:
                why = f"no bridge to {where}: {why}"
                connection.answer(message.command, message.seq, status=Status.FAIL, error=error, description=why)
            else:
                connection.answer(message.command, message.seq)

        return asked

    def _tell_asked(self, bridge: Bridge, why: str, error: ErrorCode = ErrorCode.INVALID_BRIDGE) -> None:
        asked, bridge.asked = bridge.asked, []
        if why and asked:
            self.bridges.pop(bridge.server, None)
            self._end(bridge)
        for tell in asked:
            tell(why, error)

    def _end(self, bridge: Bridge) -> None:
        bridge.removed = True
        self.core.state.delete(bridge.key)
        self.logins.forget(bridge.server)
        if bridge.dialed is not None:
            bridge.dialed.abort()

    def remove(self, connection: Connection, message: Message, body: RemoveBridge, now: float) -> None:
        """Ends a bridge for good."""
        checks.admin(connection, body.client_id, body.session_id)
        bridge = self.bridges.pop(_address(body.urn, body.port), None)
        if bridge is None:
            raise failed("there is no such bridge", ErrorCode.UNKNOWN_BRIDGE)
        self._tell_asked(bridge, "it was removed")
        self._end(bridge)
        connection.begin(message)
        self._when_synced(connection, message)

    def tell(self, connection: Connection, message: Message, body: InSession, now: float) -> None:
        """All bridges, and how they are."""
        checks.admin(connection, body.client_id, body.session_id)
        found = []
        for server, bridge in self.bridges.items():
            link = bridge.dialed.link if bridge.dialed is not None else None
            why = (link.refused if link is not None else bridge.why) or ""
            behind = link.behind if link is not None else 0
            found.append(BridgeState(server.urn, server.port, bridge.active, bridge.topics, behind, why))
        connection.answer(message.command, message.seq, Bridges(found))

    def _when_synced(self, connection: Connection, message: Message) -> None:
        def synced(pending: Pending) -> None:
            if connection.finish(message.seq):
                try:
                    pending.result()
                except Exception as error:
                    connection.answer(message.command, message.seq, status=Status.FAIL, description=str(error))
                else:
                    connection.answer(message.command, message.seq)

        self.core.when_synced(synced)

    # Dialing

    def _dial(self, bridge: Bridge) -> None:
        bridge.dialing = True
        self.to_dial.append(bridge)

    def dialed(self, bridge: Bridge, now: float) -> Dialed | None:
        """The shell connected: what speaks for the bridge; None when it is no longer wanted."""
        bridge.dialing = False
        if bridge.removed or self.core.stopping:
            return None
        login = bridge.login or self.logins.get(bridge.server) or self.credentials(bridge.server)
        bridge.dialed = Dialed(self.core, bridge, now, login, lambda why: self._ended(bridge, why))
        return bridge.dialed

    def dial_failed(self, bridge: Bridge, why: str, now: float) -> None:
        """The shell could not connect."""
        self.core.now = now
        bridge.dialing = False
        self._ended(bridge, why)

    def _ended(self, bridge: Bridge, why: str) -> None:
        bridge.dialed = None
        bridge.why = why
        self._tell_asked(bridge, why or "the connection was lost")
        bridge.due = self.core.now + bridge.pause * self._random.uniform(0.5, 1.0)
        bridge.pause = min(bridge.pause * 2, LONGEST_PAUSE_S)

    # Links

    def welcomed(self, session: Session, hello: Hello, now: float) -> None:
        """Another server began a session here: its connection is a link."""
        peer, log_id, topics = self.checked(hello)
        names = (session.client_id, session.id)
        link = Link(self.core, session.connection, peer, log_id, names, topics, session.rights)
        session.link = link
        self._up(link)

    def checked(self, hello: Hello) -> tuple[Server, bytes, list[str]]:
        """Where another server is reached, its log, and the topics of its bridge, if it may be bridged to this one."""
        if hello.log_id is None or len(hello.log_id) != 16:
            raise failed("a server says which log it has: LogId, 16 bytes")
        if hello.log_id == self.core.log.log_id:
            raise failed("a server is not bridged to itself", ErrorCode.INVALID_BRIDGE)
        return _address(hello.urn or "", hello.port), hello.log_id, self._filters(hello.topics)

    def _filters(self, topics: list[str] | None) -> list[str]:
        if len(topics or ()) > self.core.options.max_filters:
            raise failed(f"a bridge has at most {self.core.options.max_filters} filters")
        try:
            return [parse_filter(topic) for topic in topics or ["**"]]
        except BadTopic as error:
            raise failed(str(error)) from None

    def linked(self, link: Link, bridge: Bridge, now: float) -> None:
        """Another server welcomed us."""
        bridge.pause = FIRST_PAUSE_S
        bridge.why = ""
        if bridge.asked and self._login_kept(bridge):
            self.core.state.put(bridge.key, bridge.topics)
            self.core.when_synced(lambda pending: self._kept(bridge, pending))
        self._up(link)

    def _login_kept(self, bridge: Bridge) -> bool:
        if bridge.login is None:
            return True
        try:
            self.logins.keep(bridge.server, bridge.login)
        except OSError as error:
            self._tell_asked(bridge, f"its password can't be kept: {error}", ErrorCode.NONE)
            return False
        return True

    def _kept(self, bridge: Bridge, pending: Pending) -> None:
        try:
            pending.result()
        except Exception as error:
            self._tell_asked(bridge, str(error), ErrorCode.NONE)
        else:
            self._tell_asked(bridge, "")

    def _up(self, link: Link) -> None:
        self.links.append(link)
        self._choose(link.peer_log)
        self.routing.up(link)

    def left(self, session: Session, now: float) -> None:
        """A session ended."""
        if session.link is not None:
            self.unlinked(session.link, now)

    def unlinked(self, link: Link, now: float) -> None:
        """A link is gone; another one to the same server takes over."""
        if link in self.links:
            self.links.remove(link)
            link.active = False
            link.store()
            self._choose(link.peer_log)
            self.routing.down(link)

    def _choose(self, peer_log: bytes) -> None:
        # Of several links to one server only the first sends.
        for link in self.links:
            if link.peer_log == peer_log:
                if not link.active:
                    link.begin()
                return

    def knows(self, server: Server) -> bool:
        """Whether the server is at the other end of a link, or of a bridge."""
        return server in self.bridges or self.routing.is_neighbour(server)

    def message(self, link: Link, message: Message, now: float) -> None:
        """Whatever the server at the other end of a link sends."""
        command = message.command
        refused = command in ANSWERS and message.status != Status.SUCCESS
        body: Any = None if refused else protocol.body_of(message)
        if command == Command.ASYNC_MESSAGE_TO_SERVER:
            link.received(message, body)
        elif command == Command.ASYNC_MESSAGE_TO_CLIENT_ACK:
            if link.acknowledged(message):
                link.pipe.send(Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE, message.seq)
        elif command == Command.ROUTES:
            self.routing.told(link, body)
        elif command == Command.PUBLISH_MESSAGE_REQUEST:
            self.routing.arrived(link, message, body)
        elif command == Command.PUBLISH_MESSAGE_RESPONSE:
            self.routing.answered(link, message, body)
        elif command == Command.HEARTBEAT_REQUEST:
            link.pipe.send(Command.HEARTBEAT_RESPONSE, message.seq)
        elif command not in (
            Command.HEARTBEAT_RESPONSE,
            Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE,
            Command.NOTICE,
        ):
            raise BadMessage(f"{Command(command).name} is nothing that a server says to another", message.seq)

    def grew(self, environment: str, topic: str) -> None:
        """A topic has new events."""
        for link in self.links:
            link.grew(environment, topic)

    def pump(self) -> None:
        """Sends what can be sent."""
        self.routing.announce()
        for link in self.links:
            if link.active:
                link.pump()

    def tick(self, now: float) -> None:
        """Dials what is due, says that we are there, and keeps how far the others are."""
        if now - self._stored >= STORE_S:
            self._stored = now
            self.store()
        # Before it is known where this server listens, it could not say where it is reached.
        may_dial = self.core.options.port and not self.core.stopping
        for bridge in self.bridges.values() if may_dial else ():
            if bridge.dialed is None and not bridge.dialing and now >= bridge.due:
                self._dial(bridge)
        if now - self._heartbeat >= self.core.options.heartbeat_s:
            self._heartbeat = now
            for bridge in self.bridges.values():
                if bridge.dialed is not None:
                    bridge.dialed.heartbeat(now)

    def store(self) -> None:
        """Keeps how far the others are."""
        for link in self.links:
            link.store()


def _login(body: AddBridge) -> Login | None:
    if body.login is None:
        if body.password is not None:
            raise failed("Password needs a Login: who this server is at the other one")
        return None
    if not 0 < len(body.login.encode()) <= MOST_NAME_BYTES:
        raise failed(f"Login has 1 to {MOST_NAME_BYTES} bytes")
    return (body.login, body.password)


def _address(urn: str, port: int | None) -> Server:
    """The address of a bridge: a host name or an IP address, and a port."""
    sound = bool(urn) and len(urn) <= 255 and urn.isascii() and all(char.isalnum() or char in ".-_:" for char in urn)
    if not sound or urn[0] in ".-":
        raise failed(f"Urn is a host name or an IP address, not {urn[:80]!r}", ErrorCode.INVALID_URL)
    if port is not None and not 0 < port < 65536:
        raise failed(f"Port is 1 to 65535, not {port}", ErrorCode.INVALID_URL)
    return Server(urn, port or PORT)
