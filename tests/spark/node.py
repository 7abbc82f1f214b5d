"""A node in a process of its own, with a client that may write and read, for writes of Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from echomesh import sync
from echomesh.errors import UnknownTopic
from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.mesh.passwords import PasswordHash
from tests.support.certificates import Certificate
from tests.support.repository import ROOT

PASSWORD = "correct-horse-battery"


class NodeProcess:
    """A server on a data directory. Its port stays the same over restarts. `tls`: certificate, and whom to trust."""

    def __init__(self, place: Path, tls: tuple[Certificate, Path] | None = None, data: Path | None = None) -> None:
        self.data = data or place / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
        self.password_file = place / "password"
        self.password_file.write_text(PASSWORD + "\n")
        self.password_file.chmod(0o600)
        entry = PasswordHash.of(PASSWORD).text
        access = self.data / "access.toml"
        access.write_text(
            f'[clients.spark]\npassword = "{entry}"\nenvironments = ["TST"]\npublish = ["**"]\nsubscribe = ["**"]\n'
        )
        access.chmod(0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.config = place / "echomesh.toml"
        self.config.write_text("" if tls is None else f'[tls]\ncertificate = "{tls[0].pem}"\nkey = "{tls[0].key}"\n')
        self.authority = None if tls is None else tls[1]
        self.log = place / "node.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For the option `server`."""
        return f"127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Of a source or a sink."""
        secure = {} if self.authority is None else {"tls": str(self.authority)}
        return {"server": self.address, "clientId": "spark", "passwordFile": str(self.password_file), **secure}

    def start(self) -> Self:
        """It serves afterwards."""
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
        command = [sys.executable, "-m", "echomesh", "up", "--config", str(self.config)]
        command += ["--data", str(self.data), "--listen", self.address]
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text()
        return self

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it, or kills it."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def publish(self, topic: str, numbers: Iterable[int]) -> None:
        """Publishes events with these numbers for ids and data."""
        events = [Event(type="made", source="/tests", id=str(i), data=b"%d" % i) for i in numbers]
        with sync.session(self.address, client_id="spark", password=PASSWORD, tls=self.authority) as session:
            session.publish_many(topic, events)

    def events(self, topic: str) -> list[Event]:
        """All that anybody can read of a topic."""
        return events_of(self.data, topic)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def events_of(data: Path, topic: str) -> list[Event]:
    """All that anybody can read of a topic in a data directory."""
    found: list[Event] = []
    with LogReader(data) as log:
        try:
            reader = log.topic(topic)
        except UnknownTopic:
            return found
        while len(found) < reader.end:
            found.extend(Event.decode(event) for event in reader.read(len(found)).events())
    return found


def numbers_of(events: Iterable[Event]) -> list[int]:
    """The data of events that carry numbers, in order of the numbers."""
    return sorted(int(event.data or b"-1") for event in events)
