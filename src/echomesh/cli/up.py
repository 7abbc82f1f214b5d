"""`echomesh up` and `echomesh config`: a server of the mesh, and its configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echomesh.cli.common import say
from echomesh.errors import UsageError

if TYPE_CHECKING:
    from echomesh.node.address import Address
    from echomesh.node.config import Config

_STANDARD_INPUT = 0
_OTHER_FILES = 4096  # segments, and HTTP

_log = logging.getLogger("echomesh.node")


def up(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The configuration; `echomesh config` prints one.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(envvar="ECHOMESH_DATA", metavar="DIR", help="The data directory.", show_default=False),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.", show_default="127.0.0.1:4889")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where HTTP is served; not at all when not given.")
    ] = None,
    access: Annotated[
        Path | None,
        typer.Option(
            envvar="ECHOMESH_ACCESS",
            metavar="FILE",
            help="Who may what; access.toml in the data directory when not given.",
            show_default=False,
        ),
    ] = None,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Run a server of the mesh, until Ctrl-C or SIGTERM. Options count more than the file of configuration."""
    import uvloop

    from echomesh.node.config import Config
    from echomesh.node.config_file import read_config

    chosen = Config() if config is None else read_config(config)
    if data is not None:
        chosen = replace(chosen, data=data)
    if access is not None:
        chosen = replace(chosen, access=access)
    if listen is not None:
        chosen = replace(chosen, listen=_address("--listen", listen))
    if http is not None:
        chosen = replace(chosen, http=replace(chosen.http, listen=_address("--http", http)))
    if logging.getLogger().level > logging.INFO:
        logging.getLogger("echomesh").setLevel(logging.INFO)
    _allow_files(chosen.mesh.max_connections)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(chosen, until_input_ends))


def _allow_files(connections: int) -> None:
    """Each connection is an open file: as many as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < connections:
        _log.warning("open files are limited to %d: mesh.max_connections = %d will not be reached", most, connections)


def _address(name: str, text: str) -> Address:
    from echomesh.node.address import EXAMPLES, Address

    try:
        return Address.parse(text)
    except ValueError as error:
        raise UsageError(f"{name} {text}: {error}; it takes {EXAMPLES}") from None


async def _serve(config: Config, until_input_ends: bool) -> None:
    from echomesh.node.node import Node

    stop = _Stop()
    if until_input_ends:
        asyncio.get_running_loop().add_reader(_STANDARD_INPUT, stop.at_end_of_input)
    async with Node(config) as node:
        stop.listen()
        say(f"echomesh serves {node.sentence}. Ctrl-C stops it.")
        reason = await stop.asked
        _log.info("stopping reason=%s sessions=%d", reason, len(node.server.core.sessions))
    _log.info("stopped %s", node.counted)


class _Stop:
    """Asked by a signal, or by the end of standard input; a second signal does not wait for anything."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[str] = self._loop.create_future()

    def listen(self) -> None:
        """From now on signals ask; before, they end the process as ever."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        if self.asked.done():
            _log.warning("stopping at once reason=%s", number.name)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            self.asked.set_result(number.name)

    def at_end_of_input(self) -> None:
        """Called when standard input has something; only its end counts."""
        if not os.read(_STANDARD_INPUT, 4096):
            self._loop.remove_reader(_STANDARD_INPUT)
            if not self.asked.done():
                self.asked.set_result("end of input")


def config(
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read this file, and say what is wrong with it.", show_default=False),
    ] = None,
) -> None:
    """Print the whole configuration: every key, what it means and its default; or check a file."""
    from echomesh.node.config_file import config_text, read_config

    if check is None:
        print(config_text(), end="")
        return
    from echomesh.node.tls import bridge_context, server_context

    found = read_config(check)
    server_context(found.tls)
    bridge_context(found.bridges, found.tls)
    say(f"{check} is fine: a server would listen on {found.listen} and keep its data in {found.directory}.")
