"""A Spark session that suits one machine, with nothing to set up before."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from echomesh.spark import jars
from echomesh.spark.interpreter import find_python
from echomesh.spark.java import find_java

_LOCAL: Final[Mapping[str, str]] = {
    # Nobody outside has to reach the driver, and a laptop's host name may lead nowhere.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine takes its time to start a worker
}
_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",  # less for the kernel to do than over TCP
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def session(
    name: str = "echomesh", *, master: str = "local[*]", config: Mapping[str, object] | None = None
) -> SparkSession:
    """The running Spark session, or a new one: on this machine, tuned for it, unless `master` names a cluster.

    Java is found, or the one that came with `echomesh[spark]` is used. `config` has the last word on every setting.
    """
    if SparkContext._gateway is None:
        os.environ["JAVA_HOME"] = find_java()
        python = find_python() if master.startswith("local") else sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", python)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)  # the workers that plan run this
    settings: dict[str, object] = dict(_ALWAYS)
    if master.startswith("local"):
        cores = str(_cores(master))
        memory = f"{_memory_mb()}m"
        settings |= {**_LOCAL, "spark.sql.shuffle.partitions": cores, "spark.driver.memory": memory}
    settings |= jars.added(config or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdecimal() else len(os.sched_getaffinity(0)) if inside == "*" else 1


def _memory_mb() -> int:
    # A quarter of the machine, as the Python workers beside the JVM need theirs; between 1 and 8 GiB.
    whole = 4096
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            whole = int(line.split()[1]) // 1024
    return min(8192, max(1024, whole // 4))
