"""A driver whose JVM is watched by `noting.c`: a plain query, one with state, one with Spark's own checkpoints.

python -m tests.spark.noted_driver PLACE
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from echomesh.spark import session
from tests.spark.checkpoint_files import MANAGER
from tests.spark.conftest import QUICK
from tests.spark.support import catch_up, made, opened, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from echomesh.log import TopicLog

BATCHES = 3
_numbers = itertools.count()


def main(place: Path) -> None:
    """Runs the queries, one after the other."""
    spark = session("noted", master="local[1]", config={**QUICK, "spark.sql.shuffle.partitions": 1})
    spark.sparkContext.setLogLevel("ERROR")
    with opened(place / "data") as log:
        run(spark, log, place, "plain")
        run(spark, log, place, "state")
        spark.conf.unset(MANAGER)
        run(spark, log, place, "spark")


def run(spark: SparkSession, log: TopicLog, place: Path, name: str) -> None:
    """Some batches of a query, with words in the notes around those that come when it has started."""
    rows = stream(spark, place / "data")
    chosen = rows.groupBy("topic").count() if name == "state" else rows
    writer = chosen.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(place / name)).start()
    for number in range(1 + BATCHES):
        if number == 1:
            note(f"{name} begins")
        log.append_many("t", made(1, next(_numbers)))
        catch_up(query)
    note(f"{name} ends")
    query.stop()


def note(what: str) -> None:
    """A line of ours among the others."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{what}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
