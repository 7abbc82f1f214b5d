"""Ready pipelines in a process of its own, one after the other to the end of the log, which may be killed anywhere.

    python -m tests.spark.ready.driver DATA PIDS

The ids of the driver and its JVM are written to the file PIDS as soon as there is a session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark import SparkContext

from tests.spark.ready.running import all_three, finish


def main(data: Path, pids: Path) -> None:
    """Runs them."""
    from echomesh.spark import session

    config = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    session("ready", master="local[2]", config=config).sparkContext.setLogLevel("ERROR")
    gateway = SparkContext._gateway
    assert gateway is not None
    written = pids.with_suffix(".new")
    written.write_text(json.dumps([gateway.proc.pid, os.getpid()]))
    written.replace(pids)
    for pipeline in all_three():
        finish(pipeline, data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
