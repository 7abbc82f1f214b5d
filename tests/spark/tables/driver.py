"""A Spark driver in a process of its own that writes epochs to a table, and may be killed anywhere.

    python -m tests.spark.tables.driver '{"path": "...", "format": "delta", "place": "...", "kill": "...", "epochs": 9}'

It begins behind the last epoch that it has noted as done in `place`, as Spark does with its checkpoint. `kill` names
the point of its first epoch at which it ends itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from echomesh.spark.tables import Table, open_table
from tests.spark.tables.support import epoch_rows

if TYPE_CHECKING:
    import pyarrow as pa

POINTS = ("before-files", "in-files", "before-place", "before-commit", "after-commit")


def end(pids: list[int]) -> None:
    """Kills the JVM and the Python process that started it."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def armed(table: Table, point: str, pids: list[int]) -> None:
    """Makes the table end everything at a point of its next write."""
    write, place, commit = table._spark_write, table._place, table._commit

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        end([*pids, os.getpid()])

    def spark_write(fresh: Any, rows: Any, *how: Any) -> None:
        if point == "before-files":
            end(pids)
        write(fresh, rows.mapInArrow(deadly, rows.schema) if point == "in-files" else rows, *how)
        if point == "before-place":
            end(pids)

    def placed(*given: Any) -> Any:
        found = place(*given)
        if point == "before-commit":
            end(pids)
        return found

    def committed(*given: Any) -> None:
        commit(*given)
        if point == "after-commit":
            end(pids)

    for name, point_in in {"_spark_write": spark_write, "_place": placed, "_commit": committed}.items():
        setattr(table, name, point_in)


def main(wanted: dict[str, Any]) -> None:
    """Writes."""
    from echomesh.spark import session

    place = Path(wanted["place"])
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = session("driver", master="local[2]", config={"spark.driver.extraJavaOptions": java})
    spark.sparkContext.setLogLevel("ERROR")
    gateway = SparkContext._gateway
    assert gateway is not None
    pids = [gateway.proc.pid, os.getpid()]
    (place / "pids.new").write_text(json.dumps(pids))
    (place / "pids.new").rename(place / "pids")
    table = open_table(wanted["path"], format=wanted["format"])
    done = place / "done"
    first = int(done.read_text()) + 1 if done.exists() else 0
    for epoch in range(first, wanted["epochs"]):
        repeated = table.last_epoch("query") == epoch if table.exists else False
        if wanted["kill"] and not repeated:
            armed(table, wanted["kill"], pids)
        table.write(epoch_rows(spark, epoch), "query", epoch)
        (place / "done.new").write_text(str(epoch))
        (place / "done.new").rename(done)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
