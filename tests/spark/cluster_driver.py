"""A driver of a cluster: reads and writes over a server, and tells what it saw in a file.

python -m tests.spark.cluster_driver '{"master": ..., "config": ..., "options": ..., "place": ..., "password": ...}'
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from tests.spark import driver
from tests.spark.driver import Killing

# Executors do not have the tests: the class travels with the task.
cloudpickle.register_pickle_by_value(driver)  # type: ignore[no-untyped-call]


def look(_: int) -> dict[str, Any]:
    """What a task sees of its process and of those above it."""
    import echomesh

    texts, pid = [], os.getpid()
    while pid > 1:
        with contextlib.suppress(OSError):
            texts += [Path(f"/proc/{pid}/environ").read_bytes(), Path(f"/proc/{pid}/cmdline").read_bytes()]
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        pid = int(found[1])
        if b"deploy.worker.Worker" in texts[-1]:
            break
    return {"file": echomesh.__file__, "seen": b"\n".join(texts).decode(errors="replace"), "pid": os.getpid()}


def main(wanted: dict[str, Any]) -> None:
    """Does it all."""
    from echomesh.spark import session

    options, place = wanted["options"], Path(wanted["place"])
    spark = session("cluster", master=wanted["master"], config=wanted["config"])
    result: dict[str, Any] = {"tasks": spark.sparkContext.parallelize(range(4), 4).map(look).collect()}
    rows = spark.read.format("echomesh").options(subscribe="in", **options).load()
    result["read"] = sorted(int(bytes(row.data)) for row in rows.select("data").collect())
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        rows.explain(True)
        rows.explain("formatted")
    frame = rows.selectExpr("data", "concat('copy/', cast(data as string) % 3) as topic").repartition(4)
    frame.write.format("echomesh").mode("append").options(**options).save()
    spark.dataSource.register(Killing)
    (place / "pids").write_text("[]")
    stream = spark.readStream.format("echomesh").options(subscribe="in", startingOffsets="earliest", **options).load()
    writer = stream.selectExpr("data", "id").repartition(2).writeStream.format("killing")
    writer = writer.options(topic="out", kill="slow", place=str(place), **options)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    result["plan"] = plan.getvalue() + str(query.lastProgress)
    (place / "result").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
