"""Checkpoints as Spark's own code sees them: by whatever class it makes for a path."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from echomesh.spark.jars import CHECKPOINTS
from echomesh.spark.java import find_java

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

((MANAGER, OURS),) = CHECKPOINTS.items()


class Files:
    """What Spark makes to keep the files of a path; `ours=False` as it does without us."""

    def __init__(
        self, spark: SparkSession, path: object, *, ours: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self.spark = spark
        jvm, jspark = cast("tuple[Any, Any]", (spark._jvm, spark._jsparkSession))
        self.jvm = jvm
        conf = jspark.sessionState().newHadoopConf()
        conf.set(MANAGER, OURS) if ours else conf.unset(MANAGER)
        for key, value in (settings or {}).items():
            conf.set(key, value)
        self.root = self.path(path)
        package = self.jvm.org.apache.spark.sql.execution.streaming.checkpointing
        self.manager = package.CheckpointFileManager.create(self.root, conf)

    def path(self, path: object) -> Any:
        """A path of Hadoop's."""
        return self.jvm.org.apache.hadoop.fs.Path(str(path))

    def begun(self, path: object, data: bytes, *, replaces: bool = False) -> Any:
        """A stream with these bytes, which is neither closed nor cancelled."""
        stream = self.manager.createAtomic(self.path(path), replaces)
        stream.write(data)
        return stream

    def write(self, path: object, data: bytes, *, replaces: bool = False) -> None:
        """A file with these bytes."""
        self.begun(path, data, replaces=replaces).close()

    def read(self, path: object) -> bytes:
        """What is in a file."""
        return self._all_of(self.manager.open(self.path(path)))

    def read_by_hadoop(self, path: object) -> bytes:
        """What is in a file, for code of Spark's that asks Hadoop, which looks at its sums."""
        file = self.path(path)
        return self._all_of(file.getFileSystem(self.spark._jsc.hadoopConfiguration()).open(file))

    def _all_of(self, stream: Any) -> bytes:
        try:
            return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def list(self, path: object) -> list[tuple[str, int, bool]]:
        """Path, size and whether it is a directory, of all that is there."""
        found = self.manager.list(self.path(path))
        return sorted((str(one.getPath()), one.getLen() * one.isFile(), one.isDirectory()) for one in found)

    def delete(self, path: object) -> None:
        """Removes it, and all that is in it."""
        self.manager.delete(self.path(path))


def kind(error: Py4JJavaError) -> str:
    """Which exception it was in the JVM."""
    return str(error.java_exception.getClass().getName())


def names(directory: Path) -> list[str]:
    """All that is in a directory and below, hidden or not."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@contextlib.contextmanager
def a_jvm(own: str) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """A JVM with Spark's libraries and this JAR, to be killed."""
    spark = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(spark.glob("py4j-*.jar"))), classpath=f"{spark}/*:{own}", die_on_exit=True, enable_auth=True,
        java_path=f"{find_java()}/bin/java", return_proc=True,
    )  # fmt: skip
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm, process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
