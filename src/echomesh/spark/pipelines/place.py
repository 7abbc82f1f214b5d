"""Where a pipeline reads, writes and keeps what it needs; and what of that a cluster can't see."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echomesh.errors import LocalPath, UsageError
from echomesh.log.lock import writer_of
from echomesh.spark.pipelines.define import OUT, Pipeline
from echomesh.spark.pipelines.outputs import Batches, Dead, OpenedTable, Table, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

PIPELINES: Final = "pipelines"
TABLES: Final = "tables"
_LOOKS: Final = 20
_LOOK_S: Final = 0.05
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A data directory, a server, or both: then it is read from the one, and written over the other."""

    data: str | None = None
    server: str | None = None
    client_id: str | None = None
    password_file: str | None = None
    environment: str | None = None
    home: str | None = None
    tables: str | None = None
    checkpoint: str | None = None
    master: str = "local[*]"
    shared: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.data and not self.server:
            raise UsageError("give the data directory of a log (--data), host:port of a server (--server), or both")

    @property
    def homes(self) -> Path:
        """Where pipelines have their directories."""
        return home_of(self.home, self.data)

    def directory(self, name: str) -> Path:
        """Where a pipeline has its entry, lock and log, and its checkpoints unless they are elsewhere."""
        return self.homes / name

    def checkpoints(self, name: str) -> str:
        """Where the checkpoints of a pipeline are."""
        return f"{self.checkpoint.rstrip('/')}/{name}" if self.checkpoint else str(self.directory(name) / "checkpoint")

    def source_options(self) -> dict[str, str]:
        """How a source reaches the log."""
        return self._options(self.data)

    def sink_options(self) -> dict[str, str]:
        """How a sink reaches the log."""
        return self._options(None if self.server else self.data)

    def _options(self, path: str | None) -> dict[str, str]:
        found = {"environment": self.environment} if self.environment else {}
        if path:
            return {**found, "path": str(Path(path).absolute())}
        given = {"server": self.server, "clientId": self.client_id, "passwordFile": self.password_file}
        return {**found, **{key: str(value) for key, value in given.items() if value}}

    def table_path(self, name: str) -> str:
        """The path of a table: as it is when it is one, else below the directory of tables."""
        if _SCHEME.match(name) or name.startswith("/"):
            return name
        below = self.tables or (str(Path(self.data, TABLES)) if self.data else str(self.homes / TABLES))
        return f"{below.rstrip('/')}/{name}" if _SCHEME.match(below) else str(Path(below, name).absolute())

    def open_table(self, table: Table) -> OpenedTable:
        """The table, to be written."""
        from echomesh.spark.tables import open_table

        path = self.table_path(table.name)
        return open_table(path, format=table.format, partition_by=table.partition_by, sort_by=table.sort_by)

    @property
    def is_cluster(self) -> bool:
        """Whether tasks run on other machines."""
        return not self.master.startswith("local")

    def check(self, pipeline: Pipeline) -> None:
        """Raises for a log that a node serves, and `LocalPath` for what the executors of a cluster would not find."""
        if self.data and not self.server and any(isinstance(each, Topic | Dead) for each in pipeline.outputs.values()):
            _check_free(Path(self.data))
        if not self.is_cluster or self.shared:
            return
        seen = {"the checkpoint": self.checkpoints(pipeline.name)}
        for name, output in pipeline.outputs.items():
            shown = "" if name == OUT else f" of output {name}"
            tables = (output,) if isinstance(output, Table) else output.tables if isinstance(output, Batches) else ()
            for table in tables:
                seen[f"the table{shown}"] = self.table_path(table.name)
            if isinstance(output, Topic | Dead) and not self.server:
                seen[f"the log{shown}"] = str(self.data)
        for what, path in seen.items():
            if is_local(path):
                raise LocalPath(what, path, self.master)


def _check_free(data: Path) -> None:
    # Other pipelines commit to the log as well, but none of them holds it for long.
    pid = 0
    for _ in range(_LOOKS):
        pid = writer_of(str(data.absolute() / "lock"))
        if not pid:
            return
        time.sleep(_LOOK_S)
    who = f"process {pid}" if pid > 0 else "another process"
    raise UsageError(
        f"{who} writes to the log in {data}: give its server too (--server, --client, --password-file), so that events "
        "are written over it; they are read from the directory all the same"
    )


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's file system."""
    found = _SCHEME.match(path)
    return found is None or found[1].lower() == "file"


def home_of(home: str | Path | None, data: str | Path | None) -> Path:
    """Where pipelines have their directories: named, or below the data directory."""
    if home:
        return Path(home).absolute()
    if data:
        return Path(data, PIPELINES).absolute()
    raise UsageError("say where checkpoints are to be: --home DIR")
