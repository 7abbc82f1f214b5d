"""Write a Delta table, each row exactly once, without a JAR; any reader of Delta can read it.

python examples/write_table.py ./data ./tables/orders
"""

from __future__ import annotations

import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from echomesh.spark import parse_json, session, stream_topic
from echomesh.spark.tables import open_table


def main(data: str, table: str) -> None:
    """Brings the table up to date; a second run adds what came since."""
    spark = session()
    orders = parse_json(
        stream_topic(spark, "orders/**", path=data, startingOffsets="earliest"), "id BIGINT, amount DOUBLE"
    ).good
    opened = open_table(table, partition_by=(), sort_by=("id",))

    def write(rows: DataFrame, epoch: int) -> None:
        opened.write(rows.select("id", "amount", "topic", "timestamp"), "orders", epoch)

    query = (
        orders.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(Path(f"{table}-checkpoint").absolute()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(DeltaTable(table).count(), "orders in", table)


if __name__ == "__main__":
    main(*sys.argv[1:])
