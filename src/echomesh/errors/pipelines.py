"""Errors of pipelines."""

from __future__ import annotations

from echomesh.errors.general import BusyError, EchomeshError, UsageError


class BadPipeline(UsageError):
    """A pipeline with a mistake in it; `file` and `line` say where."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        where = f"{file}:{line}: " if line else f"{file}: " if file else ""
        super().__init__(f"{where}{reason}")


class UnknownPipeline(UsageError):
    """No pipeline of this name."""


class PipelineBusy(BusyError):
    """A pipeline that runs already; `pid` is the process that has it."""

    def __init__(self, name: str, pid: int, host: str, since: str) -> None:
        self.name = name
        self.pid = pid
        self.host = host
        self.since = since
        who = f"process {pid} on {host}" if pid else "another process"
        when = f" since {since}" if since else ""
        super().__init__(f"pipeline {name} runs already: {who} has it{when}. `echomesh pipeline stop {name}` ends it")


class PipelineFailed(EchomeshError):
    """A pipeline that ended by an error which another try would not mend, or not again."""

    def __init__(self, name: str, reason: str, log: str = "") -> None:
        self.name = name
        self.reason = reason
        self.log = log
        super().__init__(f"pipeline {name} failed: {reason}{f' (all of it: {log})' if log else ''}")


class LocalPath(UsageError):
    """A path of this machine that a cluster can't see."""

    def __init__(self, what: str, path: str, master: str) -> None:
        self.what = what
        self.path = path
        self.master = master
        super().__init__(
            f"{what} {path} is on this machine, and the executors of {master} are not: give a place that all of them "
            "reach, such as s3a:// or hdfs://, or say --shared if all of them see this path"
        )
