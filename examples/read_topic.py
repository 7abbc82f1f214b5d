"""Read topics as a DataFrame, and ask it something.

    python examples/read_topic.py ./data

`./data` is the data directory of a node (`echomesh up --data ./data`); it may be up meanwhile.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from echomesh.spark import read_topic, session


def busiest(events: DataFrame) -> DataFrame:
    """Topics by the number of their events, and when the last one came."""
    found = events.groupBy("topic").agg(F.count("*").alias("events"), F.max("timestamp").alias("last"))
    return found.orderBy(F.desc("events"), "topic")


def main(data: str) -> None:
    """Shows the ten busiest topics."""
    spark = session()
    # Only what is needed: the payloads stay where they are.
    busiest(read_topic(spark, "**", path=data, columns=["topic", "timestamp"])).show(10, truncate=False)


if __name__ == "__main__":
    main(sys.argv[1])
