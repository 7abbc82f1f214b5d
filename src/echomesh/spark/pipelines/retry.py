"""Dead letters, published again on their old topics: a pipeline as others are, so each of them once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from echomesh.spark.pipelines.define import ONCE, Pipeline, pipeline
from echomesh.spark.pipelines.outputs import DEAD, topic
from echomesh.topics import parse_filter, parse_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def retry(filters: Sequence[str] = ("**",), prefix: str = DEAD) -> Pipeline:
    """The pipeline that takes dead letters of these topics; it remembers for each choice of topics how far it was."""
    wanted = sorted(f"{parse_topic(prefix)}/{parse_filter(each)}" for each in filters)
    name = (
        "retry-dead" if wanted == ["dead/**"] else f"retry-dead-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]}"
    )

    @pipeline(name=name, inputs={"letters": ",".join(wanted)}, output=topic(), trigger=ONCE)
    def again(letters: DataFrame) -> DataFrame:
        from echomesh.spark.pipelines.events_out import to_retry

        return to_retry(letters)

    return again
