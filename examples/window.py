"""Windows of event time: takings a shop and minute, published as events of a topic.

    python examples/window.py ./data

Nobody else may write to the log meanwhile; over a server give the sink `server`, `clientId` and `passwordFile` instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from echomesh.spark import parse_json, session, stream_topic


def takings(orders: DataFrame) -> DataFrame:
    """The sum of the amounts a topic and minute, once no more orders of that minute are expected."""
    windows = orders.withWatermark("time", "10 seconds").groupBy("topic", F.window("time", "1 minute"))
    found = windows.agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
    return found.select("topic", F.col("window.start").alias("minute"), "amount", "orders")


def main(data: str) -> None:
    """Counts what there is. The last minutes are counted in a later run, when it is known that they are over."""
    spark = session()
    orders = parse_json(
        stream_topic(spark, "orders/**", path=data, startingOffsets="earliest"), "id BIGINT, amount DOUBLE"
    ).good
    rows = takings(orders).select(
        F.to_json(F.struct("*")).alias("data"), F.lit("application/json").alias("datacontenttype")
    )
    query = (
        rows.writeStream.format("echomesh")
        .options(path=data, topic="takings")
        .option("checkpointLocation", str(Path(data, "checkpoints", "takings").absolute()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
