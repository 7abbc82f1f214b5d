"""Runs a participant until it is over, in this process or in one that nobody has to look after."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final

import uvloop

from echomesh.data.config import DataOptions
from echomesh.data.participant import Participant
from echomesh.errors import EchomeshError

_FILES: Final = 16384
"""Open files that a participant may need: a connection for each publisher, subscriber and participant."""


def serve(options: DataOptions, ready: Callable[[Participant], None], *, service: bool) -> None:
    """Runs a participant until the last process has left, or a signal ends it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, wanted), most))

    async def run() -> None:
        async with Participant(options, service=service) as participant:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, participant.stop)
            ready(participant)
            await participant.done()

    uvloop.run(run())


def serve_detached(options: DataOptions) -> int:
    """Leaves a participant behind as a process of its own, and returns once it is ready or has failed."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        if said == b"ready":
            return 0
        sys.stderr.write(said.decode(errors="replace") or "the participant ended at once")
        return 1
    os.close(reading)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)

    word = os.fdopen(writing, "w")

    def ready(participant: Participant) -> None:
        logging.basicConfig(filename=participant.home.log, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        word.write("ready")
        word.close()

    try:
        serve(options, ready, service=False)
    except EchomeshError as error:
        if not word.closed:
            word.write(str(error))
            word.close()
    return 0
