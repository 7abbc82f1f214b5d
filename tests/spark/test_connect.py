"""Spark Connect: the client has no JVM, and source and sink run where the server is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from echomesh.spark.java import find_java
from tests.spark.support import made, opened
from tests.support.counts import full_only
from tests.support.repository import ROOT

pytestmark = [full_only, pytest.mark.spark]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from echomesh.spark import read_topic, stream_topic

data, place = sys.argv[1:3]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
assert "connect" in type(spark).__module__, type(spark)
assert spark.version == sys.argv[3], (spark.version, sys.argv[3])
print("read", spark.read.format("echomesh").options(subscribe="a", path=data).load().count())
print("topic", read_topic(spark, "*", path=data, columns=["topic", "offset"]).count())
stream = stream_topic(spark, "a", path=data, startingOffsets="earliest", maxOffsetsPerTrigger=40)
writer = stream.writeStream.format("parquet").option("checkpointLocation", place + "/checkpoint")
query = writer.trigger(availableNow=True).start(place + "/rows")
query.awaitTermination()
print("stream", spark.read.parquet(place + "/rows").count())
spark.range(30).selectExpr("string(id) as data").write.format("echomesh").mode("append").options(
    path=data, topic="c").save()
writer = stream.select("data", "id").writeStream.format("echomesh").options(path=data, topic="d")
writer = writer.option("checkpointLocation", place + "/sink")
writer.trigger(availableNow=True).start().awaitTermination()
print("written", spark.read.format("echomesh").options(subscribe="c,d", path=data).load().groupBy("topic").count()
    .orderBy("topic").collect())
try:
    spark.range(1).write.format("echomesh").mode("append").options(path=data, topic="c").save()
except Exception as error:
    print("refused", "column 'id' is bigint: cast it to string" in str(error))
spark.stop()
"""


def test_topics_are_read_and_written_over_spark_connect(data: Path, tmp_path: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(100))
        log.append_many("b", made(5))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))),
        "JAVA_HOME": find_java(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data), str(tmp_path), pyspark.__version__],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert result.stdout.splitlines() == [
        "read 100",
        "topic 105",
        "stream 100",
        "written [Row(topic='c', count=30), Row(topic='d', count=100)]",
        "refused True",
    ], result.stderr[-3000:]
