"""Join two streams: each order with the payment that follows within ten minutes.

    python examples/join.py ./data

Both are read as they come, and joined by the order's number; what never gets its payment is let go after that time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from echomesh.spark import parse_json, session, stream_topic


def paid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Orders with their payments. Both have `id`, `amount` and the append time `timestamp`."""
    ordered = orders.select("id", F.col("amount").alias("wanted"), F.col("timestamp").alias("ordered"))
    came = payments.select(F.col("id").alias("order"), "amount", F.col("timestamp").alias("paid"))
    soon = F.col("paid").between(F.col("ordered"), F.col("ordered") + F.expr("INTERVAL 10 MINUTES"))
    late = "10 minutes"
    joined = ordered.withWatermark("ordered", late).join(
        came.withWatermark("paid", late), (F.col("id") == F.col("order")) & soon
    )
    return joined.select("id", "wanted", "amount", "ordered", "paid")


def main(data: str) -> None:
    """Joins what there is, and shows it."""
    spark = session()
    orders, payments = (
        parse_json(stream_topic(spark, topics, path=data, startingOffsets="earliest"), "id BIGINT, amount DOUBLE")
        for topics in ("orders/**", "payments")
    )
    query = (
        paid(orders.good, payments.good)
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(Path(data, "checkpoints", "join").absolute()))
        .toTable("paid")
    )
    query.awaitTermination()
    spark.table("paid").orderBy("id").show()


if __name__ == "__main__":
    main(sys.argv[1])
