"""A node: opens a data directory, serves it to the mesh, and closes all of it in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar

from echomesh.errors import BadConfig, BusyError, StorageError
from echomesh.log import AsyncTopicLog
from echomesh.mesh.access import Access, open_access
from echomesh.mesh.access_file import AccessFile
from echomesh.mesh.http import HttpOptions, serve_http
from echomesh.mesh.ports import AccessPort
from echomesh.mesh.server import MeshServer
from echomesh.mesh.state import FILE_NAME, StateFile
from echomesh.mesh.tickets import read_key
from echomesh.mesh.verifying import AsyncAccess
from echomesh.node.address import Address
from echomesh.node.config import Config
from echomesh.node.logins import LOGINS_FILE, KeptLogins, configured
from echomesh.node.tls import bridge_context, server_context
from echomesh.node.watch import Watch

GRACE_S: Final = 5.0

Listening = TypeVar("Listening")

_log = logging.getLogger(__name__)


class Node:
    """A server of the mesh and its data directory, from `start` to `close`.

    >>> async def serve(config: Config) -> None:
    ...     async with Node(config) as node:
    ...         print(node.addresses)
    ...         await asyncio.Event().wait()
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.directory = config.directory.absolute()
        self.addresses: list[Address] = []
        """Where it listens, once it serves."""
        self.http_addresses: list[Address] = []
        self._held = AsyncExitStack()
        self._access_file: AccessFile | None = None
        self._serving = False

    async def start(self) -> None:
        """Serves; whatever keeps it from that is an error that says what to do, and leaves nothing open."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        config = self.config
        tls = server_context(config.tls)
        bridge_tls = bridge_context(config.bridges, config.tls)
        credentials = configured(config.bridges)
        access, local_access = self._open_access()
        self.log = await self._open_log()
        self.state = self._open_state()
        self.server = MeshServer(
            self.log,
            access,
            self.state,
            config.mesh.options(config.urn, config.bridges.port or config.listen.port),
            local_access=local_access,
            credentials=credentials,
            logins=KeptLogins(self.directory / LOGINS_FILE),
            bridge_tls=bridge_tls,
            ticket_key=read_key(self.directory),
        )
        self._serving = True
        self._held.push_async_callback(self._stop_serving)
        found = await _listening("listen", config.listen, self.server.listen(*config.listen, tls))
        self.addresses = [Address(*address) for address in found]
        if not self.server.core.options.port:
            # Port 0 was asked for: which one it is, is known only now.
            self.server.core.options = replace(self.server.core.options, port=self.addresses[0].port)
            self.server.core.bridges.tick(asyncio.get_running_loop().time())
            self.server.flush_soon()
        await self._serve_http(tls)
        self._begin(Watch(self.server, self.log, self.state, self._access_file).run())

    async def _serve_http(self, tls: ssl.SSLContext | None) -> None:
        config = self.config.http
        if config.listen is not None:
            options = HttpOptions(origins=config.origins, hosts=config.hosts)
            served = serve_http(self.server, *config.listen, tls=tls, options=options)
            http = await _listening("http.listen", config.listen, served)
            self._held.push_async_callback(http.close, GRACE_S)
            self.http_addresses = [Address(*address) for address in http.addresses]

    def _open_access(self) -> tuple[AccessPort, AccessPort | None]:
        config = self.config
        path = config.access_file
        if path is None:
            _check_loopback(config)
            _log.warning("no access file: only this machine can connect, and may do everything")
            nobody = Access()
            return self._checked(lambda: nobody), open_access()
        file = self._access_file = AccessFile(path)
        _log.info("access file=%s clients=%d", path, len(file.access))
        return self._checked(lambda: file.access), None

    def _checked(self, access: Callable[[], Access]) -> AccessPort:
        made = AsyncAccess(access, asyncio.get_running_loop())
        self._held.callback(made.close)
        return made

    async def _open_log(self) -> AsyncTopicLog:
        began = time.monotonic()
        try:
            log = AsyncTopicLog(self.directory, self.config.log.options())
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"{self.directory} can't be the data directory: {error.strerror or error}") from None
        self._held.push_async_callback(log.close)
        report, took = log.report, time.monotonic() - began
        _log.info(
            "log directory=%s id=%s topics=%d clean=%s replayed=%d seconds=%.2f",
            self.directory, log.log_id.hex(), len(log.core.topics), report.clean, report.replayed_frames, took,
        )  # fmt: skip
        for note in report.notes:
            _log.warning("log: %s", note)
        for kind in ("lost", "corrupt", "doubtful"):
            for found in getattr(report, kind):
                _log.warning("log %s: %s", kind, found)
        return log

    def _open_state(self) -> StateFile:
        loop = asyncio.get_running_loop()
        state = StateFile(
            self.directory / FILE_NAME,
            self.log.log_id,
            threaded=True,
            notify=lambda: loop.call_soon_threadsafe(self._settled),
        )
        self._held.callback(state.close)
        if not state.report.clean and not state.report.new:
            _log.warning("state: %s", state.report)
        return state

    def _settled(self) -> None:
        if self._serving:
            self.server.settled()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        self._held.push_async_callback(end)

    async def _stop_serving(self) -> None:
        await self.server.close(GRACE_S)
        self._serving = False

    @property
    def sentence(self) -> str:
        """Where it serves what, for people."""
        secure = self.config.tls.certificate is not None
        places = [*map(str, self.addresses), *(f"http{'s' * secure}://{address}" for address in self.http_addresses)]
        return f"{', '.join(places)}{' with TLS' * secure} from {self.directory}"

    @property
    def counted(self) -> str:
        """What it has done, for the log."""
        return " ".join(f"{name}={number}" for name, number in vars(self.server.core.counts).items())

    async def close(self) -> None:
        """Answers what waits for the disk, tells the clients, and leaves the directory in order."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _check_loopback(config: Config) -> None:
    for name, address in (("listen", config.listen), ("http.listen", config.http.listen)):
        try:
            if address is None or address.loopback:
                continue
        except ValueError as error:
            raise BadConfig(f"{name} = {address}: {error}", name) from None
        raise BadConfig(
            f"{name} = {address}: without an access file a server serves this machine alone. Use 127.0.0.1, or make "
            f"a file with: echomesh clients add NAME --data {config.directory}",
            name,
        )


async def _listening(name: str, address: Address, listening: Awaitable[Listening]) -> Listening:
    try:
        return await listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BusyError(f"{address} is taken: stop what listens there, or choose another port") from None
        why = error.strerror or str(error)
        raise BadConfig(f"{name} = {address}: it can't be listened on: {why}", name) from None
