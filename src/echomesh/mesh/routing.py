"""Routing: which servers can be reached over which link, for events that are meant for one server alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.mesh import checks
from echomesh.mesh.bodies import Publish, Published, Route, Routes, Server
from echomesh.mesh.codes import ENVIRONMENTS, PORT, Command, ErrorCode, Status
from echomesh.mesh.refusal import failed, forbidden
from echomesh.mesh.ways import HERE, MOST_HOPS

if TYPE_CHECKING:
    from echomesh.mesh.bridging import Bridging
    from echomesh.mesh.connection import Connection
    from echomesh.mesh.link import Link
    from echomesh.mesh.pipe import Pipe
    from echomesh.mesh.ports import Pending
    from echomesh.mesh.protocol import Message
    from echomesh.mesh.session import Session

MOST_ROUTES = 10_000
MOST_RELAYED = 10_000  # publishes that are on their way to other servers


class Routing:
    """Each server tells its neighbours whom it can reach, and over which logs, so that no way goes in a circle."""

    def __init__(self, bridging: Bridging) -> None:
        self.bridging = bridging
        self.core = bridging.core
        self._told: dict[Link, dict[Server, list[bytes]]] = {}
        self._were: set[Server] = set()
        """Servers that could be reached once: a bridge to them may only be down."""
        self._relayed: dict[str, tuple[Link, Pipe, str]] = {}
        self._numbers = 0
        self._stale = False
        self._announced: dict[Link, dict[Server, list[bytes]]] = {}

    def up(self, link: Link) -> None:
        """A link is there."""
        self._told[link] = {link.peer: [link.peer_log]}
        self._stale = True

    def down(self, link: Link) -> None:
        """A link is gone; what was on its way there is answered: nobody knows whether it arrived."""
        if len(self._were) > MOST_ROUTES:
            self._were.clear()
        self._were.update(self._told.pop(link, {}))
        self._announced.pop(link, None)
        for seq, (over, pipe, theirs) in list(self._relayed.items()):
            if over is link:
                del self._relayed[seq]
                self._fail(pipe, theirs, "the bridge went down before it answered: the event may have arrived")
        self._stale = True

    def told(self, link: Link, body: Routes) -> None:
        """A neighbour says whom it can reach."""
        if len(body.routes) > MOST_ROUTES:
            raise failed(f"at most {MOST_ROUTES} routes")
        own = self.core.log.log_id
        table = {
            Server(route.urn, route.port): route.way for route in body.routes if _sound(route) and own not in route.way
        }
        link.called = next((server for server, way in table.items() if way == [link.peer_log]), link.peer)
        table.setdefault(link.peer, [link.peer_log])
        if self._told.get(link) != table:
            self._told[link] = table
            self._stale = True

    def announce(self) -> None:
        """Tells the neighbours what is new, once for all that came in this turn."""
        if not self._stale:
            return
        self._stale = False
        core = self.core
        own = core.log.log_id
        for link in self.bridging.links:
            best: dict[Server, list[bytes]] = {Server(core.options.urn, core.options.port): [own]}
            for other, table in self._told.items():
                if other is link:
                    continue
                for server, way in table.items():
                    if link.peer_log in way or own in way or len(way) >= MOST_HOPS:
                        continue
                    if server not in best or len(way) + 1 < len(best[server]):
                        best[server] = [own, *way]
            if self._announced.get(link) != best:
                self._announced[link] = best
                routes = [Route(server.urn, server.port, way) for server, way in best.items()]
                link.pipe.send(Command.ROUTES, "routes", Routes(routes))

    def is_neighbour(self, server: Server) -> bool:
        """Whether the server is at the other end of a link, by whatever name."""
        return any(server in (link.peer, link.called) for link in self._told)

    def way_to(self, server: Server) -> Link:
        """The link that leads there on the shortest way."""
        found = [(len(table[server]), i) for i, table in enumerate(self._told.values()) if server in table]
        if found:
            return list(self._told)[min(found)[1]]
        where = f"{server.urn}:{server.port}"
        if server in self.bridging.bridges or server in self._were:
            raise failed(f"the bridge to {where} is down", ErrorCode.BRIDGE_NOT_ACTIVE)
        raise failed(f"no bridge leads to {where}", ErrorCode.NO_BRIDGE_SERVER)

    def publish(
        self, connection: Connection, message: Message, session: Session, body: Publish, topic: str, event: bytes
    ) -> None:
        """Sends a client's event to the server that it names."""
        link = self.way_to(Server(body.urn or "", body.port or PORT))
        connection.begin(message, len(event))
        self._relay(link, connection, message.seq, body, session.environment, topic)

    def _relay(self, link: Link, pipe: Pipe, seq: str, body: Publish, environment: str, topic: str) -> None:
        if len(self._relayed) >= MOST_RELAYED:
            raise failed(f"{MOST_RELAYED} publishes are on their way to other servers: try again soon")
        client_id, session_id = link.session
        self._numbers += 1
        own = f"r{self._numbers}"
        self._relayed[own] = (link, pipe, seq)
        server = Server(body.urn or "", body.port or PORT)
        if server == link.peer:
            server = link.called
        onward = Publish(
            client_id, session_id, topic, body.cloud_event, server.urn, server.port, environment, body.hops + 1
        )
        link.pipe.send(Command.PUBLISH_MESSAGE_REQUEST, own, onward)

    def arrived(self, link: Link, message: Message, body: Publish) -> None:
        """An event that a neighbour sent on: it is for us, or goes on."""
        topic = checks.topic_of(body.topic)
        environment = body.environment or "TST"
        if environment not in ENVIRONMENTS:
            raise failed(f"Environment is one of {', '.join(ENVIRONMENTS)}")
        rights = link.rights
        if rights is not None and not (rights.may_use(environment) and rights.may_publish(topic)):
            raise forbidden(f"{topic} of {environment} may not be sent here", ErrorCode.UNAUTHORIZED_PUBLISH)
        server = Server(body.urn or "", body.port or PORT)
        if not self.core.is_here(server):
            if body.hops >= MOST_HOPS:
                self.core.counts.too_far += 1
                raise failed(f"{MOST_HOPS} servers on the way are too many", ErrorCode.NO_BRIDGE_SERVER)
            self._relay(self.way_to(server), link.pipe, message.seq, body, environment, topic)
            return
        event = bytes(body.cloud_event)
        checks.sound(event)
        self.core.topics.admit(environment, topic)
        pending = self.core.log.append(topic, event, environment=environment, origin=HERE)

        def kept(done: Pending) -> None:
            try:
                offset = done.result()
            except Exception as error:
                self._fail(link.pipe, message.seq, str(error), ErrorCode.NONE)
            else:
                assert isinstance(offset, int)
                link.pipe.send(Command.PUBLISH_MESSAGE_RESPONSE, message.seq, Published(offset))
                self.core.grew(environment, topic)

        self.core.when_done(pending, kept)

    def answered(self, link: Link, message: Message, body: Published | None) -> None:
        """A neighbour answers what we sent on: so is whoever sent it to us."""
        found = self._relayed.pop(message.seq, None)
        if found is None or found[0] is not link:
            return
        _, pipe, seq = found
        if not self._finish(pipe, seq):
            return
        pipe.send(
            Command.PUBLISH_MESSAGE_RESPONSE,
            seq,
            body,
            status=_status(message),
            error=_error(message),
            description=message.description,
        )

    def _fail(self, pipe: Pipe, seq: str, why: str, error: ErrorCode = ErrorCode.BRIDGE_NOT_ACTIVE) -> None:
        if self._finish(pipe, seq):
            pipe.send(Command.PUBLISH_MESSAGE_RESPONSE, seq, status=Status.FAIL, error=error, description=why)

    def _finish(self, pipe: Pipe, seq: str) -> bool:
        finish = getattr(pipe, "finish", None)
        return not pipe.closed if finish is None or seq not in getattr(pipe, "in_flight", ()) else bool(finish(seq))


def _sound(route: Route) -> bool:
    named = len(route.urn) <= 255 and 0 < route.port < 65536
    return named and 0 < len(route.way) < MOST_HOPS and all(len(log) == 16 for log in route.way)


def _status(message: Message) -> Status:
    return Status(message.status) if message.status in list(Status) else Status.FAIL


def _error(message: Message) -> ErrorCode:
    return ErrorCode(message.error) if message.error in list(ErrorCode) else ErrorCode.NONE
