"""A session over a blocking socket, for a process that does one thing after the other, such as a task of Spark.

No event loop and no thread: a request is sent, and its answer awaited now or later. A connection that broke is made
again by the next `ask`. It says nothing while it is not used, so a server may have let it go in the meantime.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from typing import Any, Final

import msgspec
from msgspec import Struct

from echomesh.errors import BadMessage, ConnectionLost, EchomeshError, LoginBusy, RateLimited, RequestFailed
from echomesh.frames import MAX_FRAME
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Body, Hello, Server, Welcome
from echomesh.mesh.client_options import Backoff, Tls, parse_address, tls_context
from echomesh.mesh.client_wire import failure, stage_error
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.near import send_at_once

CONNECT_S: Final = 5.0
ANSWER_S: Final = 300.0  # a commit of gigabytes takes a while
OUTAGE_S: Final = 60.0


class FetchedView(Struct, rename="pascal", gc=False):
    """The answer to FETCH, whose records are not copied out of the message."""

    log_id: bytes
    offset: int
    next_offset: int
    records: memoryview = memoryview(b"")
    lost: tuple[int, int] | None = None
    why: str | None = None


_fetched: Final = msgspec.msgpack.Decoder(FetchedView).decode


class Direct:
    """One session with a server, for one purpose; by a password, or by a ticket."""

    def __init__(
        self,
        address: str,
        client_id: str,
        *,
        password: str | None = None,
        ticket: str | None = None,
        environment: str = "TST",
        purpose: Purpose = Purpose.PUBLISH,
        tls: Tls = None,
        outage_s: float = OUTAGE_S,
    ) -> None:
        self.server: Server = parse_address(address)
        self.hello = Hello(client_id, environment, password=password, purpose=int(purpose), ticket=ticket)
        self.outage_s = outage_s
        self.log_id = b""
        self._tls: ssl.SSLContext | None = tls_context(tls)
        self._socket: socket.socket | None = None
        self._session_id = ""
        self._numbers = 0
        self._early: dict[str, protocol.Message] = {}

    def __repr__(self) -> str:
        return f"Direct({self.server.urn}:{self.server.port}, {self.hello.client_id!r})"

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as it is known."""
        return self._socket is not None

    # Requests

    def ask(self, command: Command, body: Any) -> Any:
        """Asks, and gives the body of the answer; over a new connection when the one that there was broke.

        So what is asked may be done twice. `ConnectionLost` when there is no connection for `outage_s`, or at once when
        the server's certificate is not trusted.
        """
        until, backoff = time.monotonic() + self.outage_s, Backoff(rng=random.Random())
        while True:
            try:
                return self.receive(self.send(command, body))
            except ConnectionLost as lost:
                self.close()
                if time.monotonic() > until or isinstance(lost.__cause__, ssl.SSLCertVerificationError):
                    raise
                time.sleep(backoff.pause())

    def send(self, command: Command, body: Any) -> str:
        """Sends a request; what `receive` wants to know of it. Connects when there is no connection."""
        if self._socket is None:
            self._connect()
        body.client_id, body.session_id = self.hello.client_id, self._session_id
        return self._send(command, body)

    def receive(self, seq: str) -> Any:
        """The body of the answer; raises what the server refused it with."""
        message = self._early.pop(seq, None)
        while message is None:
            came = self._message()
            if came.seq == seq:
                message = came
            elif came.command != Command.NOTICE and came.seq:
                self._early[came.seq] = came
        if message.status:
            raise _error(message)
        if message.command == Command.FETCH_RESPONSE:
            try:
                return _fetched(message.body)
            except msgspec.MsgspecError as error:
                raise BadMessage(f"the body of {Command.FETCH_RESPONSE.name}: {error}", seq) from None
        return protocol.body_of(message)

    def close(self) -> None:
        """Lets go of the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._early.clear()

    # The connection

    def _connect(self) -> None:
        server = self.server
        try:
            raw = socket.create_connection((server.urn, server.port), CONNECT_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send_at_once(raw)
            self._socket = raw if self._tls is None else self._tls.wrap_socket(raw, server_hostname=server.urn)
            self._socket.settimeout(ANSWER_S)
        except ssl.SSLCertVerificationError as error:
            raise ConnectionLost(
                f"no connection with {server.urn}:{server.port}: its certificate is not trusted: {error.verify_message}"
            ) from error
        except OSError as error:
            raise ConnectionLost(f"no connection with {server.urn}:{server.port}: {error}") from None
        try:
            welcome: Welcome = self.receive(self._send(Command.HELLO_REQUEST, self.hello))
        except BaseException as error:
            self.close()
            if type(error) in (RequestFailed, RateLimited, LoginBusy):
                # It stops, or is busy: that passes.
                raise ConnectionLost(f"{server.urn}:{server.port}: {error}") from None
            raise
        self._session_id, self.log_id = welcome.session_id, welcome.log_id or b""

    def _send(self, command: Command, body: Body) -> str:
        assert self._socket is not None
        self._numbers += 1
        seq = f"d{self._numbers:x}"
        try:
            first, *others = parts = protocol.parts(command, seq, body)
            self._socket.sendall(sum(map(len, parts)).to_bytes(4, "big") + first)
            for part in others:
                self._socket.sendall(part)
        except OSError as error:
            raise self._lost(error) from None
        return seq

    def _message(self) -> protocol.Message:
        if self._socket is None:
            raise ConnectionLost("the connection broke before the answer: it may have been done, or not")
        size = int.from_bytes(self._read(4), "big")
        if size > MAX_FRAME:
            raise self._lost(f"a message of {size} bytes")
        try:
            return protocol.decode(self._read(size))
        except BadMessage as error:
            raise self._lost(error) from None

    def _read(self, size: int) -> bytearray:
        assert self._socket is not None
        data = bytearray(size)
        view, at = memoryview(data), 0
        try:
            while at < size:
                got = self._socket.recv_into(view[at:])
                if not got:
                    raise self._lost("the server closed it")
                at += got
        except OSError as error:
            if isinstance(error, ConnectionLost):
                raise
            raise self._lost(error) from None
        return data

    def _lost(self, why: object) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"the connection with {self.server.urn}:{self.server.port} broke: {why}")


def _error(message: protocol.Message) -> EchomeshError:
    return stage_error(message) or failure(message.status, message.error, message.description)
