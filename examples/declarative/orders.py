"""Topics in Spark Declarative Pipelines: a streaming table of orders, and large ones back to a topic, exactly once."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

DATA = os.environ["ECHOMESH_DATA"]
spark = SparkSession.active()

dp.create_sink("large", "echomesh", {"path": DATA, "topic": "alerts/large"})


@dp.table
def orders() -> DataFrame:
    """Every order, with its amount."""
    events = (
        spark.readStream.format("echomesh").options(path=DATA, subscribe="orders/**", startingOffsets="earliest").load()
    )
    payload = F.from_json(F.col("data").cast("string"), "id BIGINT, amount DOUBLE")
    return events.select("topic", "timestamp", payload.alias("order")).select("topic", "timestamp", "order.*")


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    """Those over 1,000, as events."""
    found = spark.readStream.table("orders").where("amount > 1000")
    return found.select(
        F.to_json(F.struct("id", "amount")).alias("data"), F.lit("application/json").alias("datacontenttype")
    )
