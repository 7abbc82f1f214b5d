"""What commands share that speak to a server: who and where, passwords, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from echomesh.cli.common import hung_up
from echomesh.errors import NotAuthorized

if TYPE_CHECKING:
    from echomesh.mesh.client import Session

Result = TypeVar("Result")

PASSWORD_VARIABLE = "ECHOMESH_PASSWORD"

ServerOption = Annotated[
    str,
    typer.Option("--server", "-s", envvar="ECHOMESH_SERVER", metavar="HOST[:PORT]", help="The server."),
]
ClientOption = Annotated[
    str | None,
    typer.Option(
        "--client", "-c", envvar="ECHOMESH_CLIENT", metavar="ID", help="Who you are there.", show_default=False
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"Its first line is the password. Else it is in {PASSWORD_VARIABLE}, or asked for when one is needed.",
        show_default=False,
    ),
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Connect with TLS.")]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="ECHOMESH_CA", metavar="FILE", help="Connect with TLS, and trust these CAs.", show_default=False
    ),
]
SERVER = "127.0.0.1:4889"


@dataclass(frozen=True)
class Login:
    """Where to, and as whom."""

    server: str
    client: str | None = None
    password_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    environment: str = "TST"

    @property
    def client_id(self) -> str:
        """The client that was named, or one of this process alone."""
        return self.client or f"cli-{socket.gethostname()}-{os.getpid()}"

    def session(self, password: str | None) -> Session:
        """A session; it connects with the first request."""
        from echomesh.mesh.client import session

        return session(
            self.server,
            client_id=self.client_id,
            password=password,
            environment=self.environment,
            tls=self.ca or self.tls,
        )

    def run(self, work: Callable[[Session], Coroutine[Any, Any, Result]]) -> Result:
        """Does the work in a session. If the server wants a password and there is a terminal, it is asked for."""
        from echomesh.node.secrets import password_from

        password = password_from(self.password_file, PASSWORD_VARIABLE, "--password-file")
        try:
            return _run(self._work(password, work))
        except NotAuthorized:
            if password is not None or not sys.stderr.isatty():
                raise
        password = typer.prompt(f"Password of {self.client_id}", hide_input=True, err=True)
        return _run(self._work(password, work))

    async def _work(self, password: str | None, work: Callable[[Session], Awaitable[Result]]) -> Result:
        async with self.session(password) as session:
            return await work(session)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Interrupt:
    """Whether somebody asked the command to end: Ctrl-C, SIGTERM, or a reader of its output that went away."""

    LOOK_S = 0.5

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.asked.set)
        self._look()

    def _look(self) -> None:
        if hung_up():
            self.asked.set()
        else:
            asyncio.get_running_loop().call_later(self.LOOK_S, self._look)

    async def before(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """The result of the work, or None if it was interrupted."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.wait((task, asked))
