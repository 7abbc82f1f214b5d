"""A server in a process of its own, as `echomesh up` runs it, started by forking: many times a second if need be."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from echomesh.node.address import Address
from echomesh.node.config_file import read_config
from echomesh.node.node import Node


def serve(directory: str, listen: tuple[str, int], config: str, errors: str, ready: Connection) -> None:
    """Serves until SIGTERM, or until the tests are gone; tells its port when it does."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(directory, listen, config, ready))


async def _serve(directory: str, listen: tuple[str, int], config: str, ready: Connection) -> None:
    chosen = replace(read_config(Path(config)), data=Path(directory), listen=Address(*listen))
    loop, stop, parent = asyncio.get_running_loop(), asyncio.Event(), parent_process()
    assert parent is not None
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(parent.sentinel, os._exit, 1)
    async with Node(chosen) as node:
        ready.send(node.addresses[0].port)
        await stop.wait()
