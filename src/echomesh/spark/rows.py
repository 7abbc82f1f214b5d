"""Record batches of Spark to blocks of staged rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from echomesh.errors import BadTopic, UsageError
from echomesh.events import Event
from echomesh.native import mesh_event
from echomesh.native.spark_rows import RowEncoder
from echomesh.topics import parse_topic

if TYPE_CHECKING:
    from echomesh.native.spark_rows import Column

BLOCK_BYTES: Final = 2 << 20
_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = (pa.string(), pa.binary())

Block = tuple[bytes, int, list[str]]
"""Rows as they stand in a stage, how many, and the topics that they name for the first time."""


class Rows:
    """The rows of one task: record batches in, blocks out."""

    def __init__(self, topic: str | None, writer: str, prefix: str) -> None:
        self.topic = topic
        self._topics: dict[str, int] = {}
        self._fresh: list[str] = []
        self._encoder = RowEncoder(self._number, f"{prefix}-".encode(), f"/spark/{writer}".encode(), b"row")
        self._told = 0
        if topic is not None:
            self._number(topic.encode())

    @property
    def count(self) -> int:
        """How many there were."""
        return self._encoder.rows

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        """All rows of these batches, some at a time."""
        encoder = self._encoder
        for batch in batches:
            columns, at = _Columns(batch, with_topic=self.topic is None), 0
            while at < batch.num_rows:
                at = encoder.add(columns.places, at, batch.num_rows, BLOCK_BYTES)
                if encoder.waiting >= BLOCK_BYTES:
                    yield self._take()
        if encoder.waiting:
            yield self._take()

    def restart(self) -> None:
        """The next block is the first of another stage."""
        self._encoder.restart()
        self._fresh = list(self._topics)

    def _take(self) -> Block:
        rows, self._told = self._encoder.rows - self._told, self._encoder.rows
        fresh, self._fresh = self._fresh, []
        return self._encoder.take(), rows, fresh

    def _number(self, spelled: bytes) -> int:
        try:
            topic = parse_topic(spelled.decode())
        except BadTopic as error:
            raise UsageError(f"row {self._encoder.rows}: {error}") from None
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = len(self._topics)
            self._fresh.append(topic)
        return number


def judge(event: bytes) -> None:
    """Raises for an event that breaks the standard."""
    Event.decode(event)
    mesh_event.learn(event)


class _Columns:
    """Where the columns of a batch stand in memory, which stays there as long as this does."""

    def __init__(self, batch: pa.RecordBatch, *, with_topic: bool) -> None:
        self.arrays: list[Any] = []
        self.places: list[Column] = []
        columns: list[Any] = batch.columns
        for field, array in zip(batch.schema, columns, strict=True):
            name = field.name.lower()
            if name == "attributes":
                self._add(name, array, ends=1)
                self._add_text("keys", array.keys)
                self._add_text("values", array.items)
            elif name == "time":
                self._add(name, array if array.type == _TIME else array.cast(_TIME), body=1)
            elif name != "topic" or with_topic:
                self._add_text(name, array)

    def _add_text(self, name: str, array: Any) -> None:
        if array.type not in _TEXTS:
            array = array.cast(pa.binary() if pa.types.is_large_binary(array.type) else pa.string())
        self._add(name, array, ends=1, body=2)

    def _add(self, name: str, array: Any, *, ends: int | None = None, body: int | None = None) -> None:
        buffers = array.buffers()
        valid = buffers[0] if array.null_count else None
        wanted = (valid, None if ends is None else buffers[ends], None if body is None else buffers[body])
        at_valid, at_ends, at_body = (0 if buffer is None else int(buffer.address) for buffer in wanted)
        self.arrays.append(array)
        self.places.append((name, pa.types.is_string(array.type), array.offset, at_valid, at_ends, at_body))
