"""Offsets go to and fro as short as may be, and mean the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import DataLoss
from echomesh.spark.answers import KEPT, Answers
from echomesh.spark.offsets import Offsets
from echomesh.spark.stream import StreamReader
from pyspark_echomesh import DefaultSource
from tests.spark.support import made, opened

SOME = Offsets("ab" * 16, {"a": 1, 'b/"ü"': 2}, 3)


def test_offsets_go_as_they_are_where_nobody_knows_better() -> None:
    answers = Answers()
    said = answers.say(SOME)
    assert said == {"log": SOME.log_id, "topics": {"a": 1, 'b/"ü"': 2}, "events": 3}
    assert answers.hear(json.loads(json.dumps(said))) == SOME
    assert answers.text({"lost": 0}) == {"lost": 0}


def test_an_answer_is_named_by_its_number_for_a_while() -> None:
    answers = Answers()
    assert answers.hear({"offset": SOME.json()}) == SOME
    given = [Offsets(SOME.log_id, {"a": i}) for i in range(2 * KEPT)]
    said = [answers.say(one) for one in given]
    assert [json.loads(one["text"]) for one in said] == [one.json() for one in given]
    for one, offsets in list(zip(said, given, strict=True))[-KEPT:]:
        assert answers.hear({"answer": one["answer"]}) is offsets
    with pytest.raises(KeyError):
        answers.hear({"answer": said[0]["answer"]})
    assert len(answers.kept) == KEPT


@pytest.mark.parametrize("wrong", [{}, None, 5, {"offset": {}}, {"offset": {"log": "x", "topics": {"a": "1"}}}])
def test_what_is_no_offset_is_said_to_be_none(wrong: Any) -> None:
    with pytest.raises(DataLoss, match="no offsets of echomesh"):
        Answers().hear(wrong)


def test_a_stream_answers_the_same_either_way(data: Path) -> None:
    with opened(data) as log:
        source = DefaultSource({"subscribe": "**", "path": str(data), "startingOffsets": "earliest"})
        plain, brief = (StreamReader(source.options, source.schema()) for _ in range(2))
        limit = plain.getDefaultReadLimit()
        start: dict[str, Any] = plain.initialOffset()
        asked: dict[str, Any] = {"offset": brief.initialOffset()}
        for batch in range(5):
            for topic in ("a", "b/c"):
                log.append_many(topic, made(3, 3 * batch))
            end, answer = plain.latestOffset(start, limit), brief.latestOffset(asked, limit)
            assert json.loads(answer["text"]) == end
            # Answers.java makes the report of these.
            report = answer["text"].rpartition(',"events":')[0] + f',"lost":{answer["lost"]}}}'
            assert json.loads(report) == plain.reportLatestOffset()
            assert json.loads(brief.reportLatestOffset()["text"]) == plain.reportLatestOffset()
            assert brief.reportLatestOffset() == {"same": True}
            assert plain.reportLatestOffset()["topics"], "who is not told numbers is told all of it again"
            number = {"answer": answer["answer"]}
            assert [part.ranges for part in brief.partitions(asked, number)] == [
                part.ranges for part in plain.partitions(start, end)
            ]
            assert brief.latestOffset(number, limit) is number
            start, asked = end, number
        plain.stop()
        brief.stop()


def test_where_the_log_ends_is_told_with_the_answer_only_if_it_is_the_same(data: Path) -> None:
    with opened(data) as log:
        log.append_many("a", made(10))
        log.append_many("b", made(10))
        source = DefaultSource(
            {"subscribe": "**", "path": str(data), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
        )
        reader = StreamReader(source.options, source.schema())
        limit = reader.getDefaultReadLimit()
        asked: dict[str, Any] = {"offset": reader.initialOffset()}
        told = []
        for _ in range(3):
            answer = reader.latestOffset(asked, limit)
            told.append("lost" in answer)
            asked = {"answer": answer["answer"]}
        reader.stop()
    assert told == [False, False, True]
