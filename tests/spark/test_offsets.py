"""What a checkpoint holds, and what it may hold that is not of the source."""

from __future__ import annotations

import json

import pytest

from echomesh.errors import DataLoss
from echomesh.spark.offsets import Offsets


def test_they_come_back_from_a_checkpoint() -> None:
    offsets = Offsets("00ff", {"a": 7, "b/c": 0}, events=3)
    kept = json.loads(json.dumps(offsets.json()))
    assert Offsets.of(kept) == offsets
    assert kept["events"] == 3
    assert Offsets.of({"log": "00ff", "topics": {}}).topics == {}


@pytest.mark.parametrize(
    "found",
    [
        None, [], "offsets", 7, {}, {"log": "x"}, {"topics": {}}, {"log": 7, "topics": {}}, {"log": "x", "topics": []},
        {"log": "x", "topics": {"a": "7"}}, {"log": "x", "topics": {"a": 1, "b": None}}, {"offset": 100},
        {"log": "x", "topics": {"a": 1.5}}, {"log": "x", "topics": {"a": True}},
    ],
)  # fmt: skip
def test_another_source_has_others(found: object) -> None:
    with pytest.raises(DataLoss, match="holds no offsets of echomesh"):
        Offsets.of(found)
