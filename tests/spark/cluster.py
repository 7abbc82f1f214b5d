"""A standalone cluster of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyspark

from echomesh.spark.java import find_java

BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


class Cluster:
    """A master and two workers, on two addresses of this machine, so that Spark takes them for two hosts."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.place.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.master = f"spark://127.0.0.1:{probe.getsockname()[1]}"
        host, port = self.master.removeprefix("spark://").split(":")
        self._start("master.Master", "--host", host, "--port", port, "--webui-port", "0")
        for number, address in enumerate(("127.0.0.1", "127.0.0.2")):
            work = str(place / f"work-{number}")
            own = ("--host", address, "--cores", "2", "--memory", "1g", "--webui-port", "0", "--work-dir", work)
            self._start("worker.Worker", *own, self.master)

    def _start(self, kind: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.place), "SPARK_HOME": str(home)}
        environment |= {"JAVA_HOME": find_java(), "PYSPARK_PYTHON": str(BARE), "SPARK_NO_DAEMONIZE": "1"}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with (self.place / f"{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.place))

    def close(self) -> None:
        """Ends all of it."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait()
