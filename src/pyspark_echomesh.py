"""Spark finds this module by its name, and with it `format("echomesh")`: nothing has to be registered.

It imports PySpark and nothing else. If it raised, Spark would find no Python source at all; so what is missing is
said when a query is made.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics of an echomesh log as DataFrames."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        from echomesh.spark.source import check

        check(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format()`."""
        return "echomesh"

    def schema(self) -> StructType:
        """The columns of a read."""
        from echomesh.spark.source import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from echomesh.spark.source import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        from echomesh.spark.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch write."""
        from echomesh.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """A streaming write."""
        from echomesh.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
