"""What runs inside the JVM, a reader and checkpoints: a JAR that is made on first use, for the Spark that is installed.

Its Java sources are in `jvm`. Spark brings a compiler for the code that it generates; that one compiles them, so
neither a JDK is needed nor a JAR for each version of Spark. Where it can't be made, tasks read by Python, and Spark
keeps checkpoints by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from echomesh.errors import UsageError
from echomesh.events import rules
from echomesh.spark.cache import kept
from echomesh.spark.java import find_java

SETTING: Final = "spark.jars"
CHECKPOINTS: Final[Mapping[str, str]] = {"spark.sql.streaming.checkpointFileManagerClass": "echomesh.Checkpoints"}
SOURCES: Final = Path(__file__).parent / "jvm"
_END_S: Final = 10.0
_log = logging.getLogger(__name__)


def jar() -> str:
    """The path of the JAR, for `spark.jars` of a session that `echomesh.spark.session` does not make.

    It is made when it is asked for first, which takes some two seconds, and kept in the user's cache directory.
    """
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.java"))]
    mixed = hashlib.sha256(repr((pyspark.__version__, texts, rules.GRAMMARS)).encode()).hexdigest()[:12]
    return str(kept(f"echomesh-spark-{pyspark.__version__}-{mixed}.jar", _make))


def added(config: Mapping[str, object]) -> dict[str, object]:
    """These settings of a session, with the JAR among those that they name, and checkpoints kept by it.

    Without either where it can't be made.
    """
    try:
        own = jar()
    except (UsageError, OSError) as error:
        _log.warning("tasks will read by Python, which is slower: %s", error)
        return dict(config)
    named = [name for name in str(config.get(SETTING, "")).split(",") if name]
    kept_by_it = CHECKPOINTS if _will_be_seen() else {}
    return {**kept_by_it, **config, SETTING: ",".join([*named, *([] if own in named else [own])])}


def _will_be_seen() -> bool:
    # A JVM that runs already takes no other JARs: its queries would fail for want of a class that they are told to use.
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return True
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        for name in CHECKPOINTS.values():
            loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _make(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="echomesh-") as place:
        _compile(Path(place))
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(Path(place).rglob("*.class")):
                packed.write(path, path.relative_to(place))
            for name, grammar in rules.GRAMMARS.items():
                packed.writestr(f"echomesh/{name}.grammar", grammar)  # which Judge.java looks for


def _compile(into: Path) -> None:
    with _java() as gateway:
        file, sources = gateway.jvm.java.io.File, sorted(SOURCES.glob("*.java"))
        files = gateway.new_array(file, len(sources))
        for number, path in enumerate(sources):
            files[number] = file(str(path))
        try:
            compiler = gateway.jvm.org.codehaus.janino.CompilerFactory().newCompiler()
            compiler.setDestinationDirectory(file(str(into)), False)
            compiler.compile(files)
        except Py4JJavaError as error:
            raise UsageError(f"Spark {pyspark.__version__} does not compile it: {error.java_exception}") from None
        except Py4JError as error:
            raise UsageError(f"the Java that compiles it ended: {error}") from None


@contextlib.contextmanager
def _java() -> Iterator[Any]:
    """A JVM with Spark's libraries, for a moment."""
    jars = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=f"{jars}/*",
        java_path=f"{find_java()}/bin/java",
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()  # at which it ends
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
