"""Figures, failures and metrics out of what Spark says."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

from echomesh.errors import StorageError, UsageError
from echomesh.spark.pipelines.failures import failure
from echomesh.spark.pipelines.metrics import served
from echomesh.spark.pipelines.progress import TOPICS, update
from echomesh.spark.pipelines.registry import Entry, Figures

QUERY = "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: "
TAIL = " SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = a]\nValueError: not this one"


def said(batch: int, rows: int, ends: dict[str, int], latest: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "id": "q", "batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 50.0,
        "durationMs": {"triggerExecution": 200},
        "sources": [{"endOffset": {"log": "l", "topics": ends},
                     "latestOffset": json.dumps({"log": "l", "topics": latest, "lost": 3})}],
        **more,
    }  # fmt: skip


def test_figures_add_up_over_batches() -> None:
    figures = Figures(output="out", target="topic a")
    state = [{"numRowsTotal": 4, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2}]
    update(figures, said(0, 10, {"a": 10}, {"a": 15, "b": 5}))
    assert (figures.rows, figures.lag, figures.topics, figures.batch_ms) == (10, 10, [("a", 5), ("b", 5)], 200)
    times = {"watermark": "2026-07-01T00:00:00.000Z"}
    update(figures, said(1, 10, {"a": 15, "b": 5}, {"a": 15, "b": 5}, stateOperators=state, eventTime=times))
    update(figures, said(1, 0, {"a": 15, "b": 5}, {"a": 15, "b": 5}, stateOperators=state))
    assert (figures.rows, figures.lag, figures.topics, figures.batch) == (20, 0, [], 1)
    assert (figures.state_rows, figures.state_bytes, figures.late, figures.lost) == (4, 100, 4, 3)
    assert figures.watermark == "", "the last progress did not say"


def test_only_the_topics_with_most_lag_are_told_apart() -> None:
    figures = Figures(output="out", target="topic a")
    update(figures, said(0, 1, {}, {f"t/{i}": i for i in range(1000)}))
    assert figures.lag == sum(range(1000))
    assert len(figures.topics) == TOPICS
    assert figures.topics[0] == ("t/999", 999)


@pytest.mark.parametrize(
    ("text", "kind", "reason", "lasting"),
    [
        ("[A.B] Something is wrong." + TAIL, "", "Something is wrong.", False),
        (
            'Traceback (most recent call last):\n  File "/x/site-packages/py4j/a.py", line 1, in f\n'
            '  File "/srv/me/flow.py", line 7, in big\n    raise ValueError("broke")\nValueError: it broke' + TAIL,
            "ValueError", "/srv/me/flow.py:7: ValueError: it broke", False,
        ),
        (
            'Traceback:\n  File "/x/echomesh/spark/sink.py", line 1, in f\n'
            "echomesh.errors.log.StaleWriter: epoch 3 is older than 7" + TAIL,
            "StaleWriter", "epoch 3 is older than 7", True,
        ),
        ("echomesh.errors.mesh.ConnectionLost: no route" + TAIL, "ConnectionLost", "no route", False),
        ("echomesh.errors.spark.SchemaChanged: column 'a' is long" + TAIL, "SchemaChanged", "column 'a' is long", True),
        ("", "", "no reason given", False),
    ],
    ids=["spark", "user", "stale", "lost", "schema", "empty"],
)  # fmt: skip
def test_the_reason_of_a_failure_is_one_sentence(text: str, kind: str, reason: str, lasting: bool) -> None:
    found = failure((QUERY if text else "") + text)
    assert (found.kind, str(found), found.lasting) == (kind, reason, lasting)


def test_metrics_show_each_query_and_its_topics_with_most_lag() -> None:
    figures = Figures(output="out", target="topic a", rows=7, lag=5, batch_ms=250, topics=[("a", 5)], restarts=2)
    entry = Entry(name="big", file="", state="running", pid=1, host="h", started="", updated="", master="m",
                  checkpoint="c", queries=[figures])  # fmt: skip
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with served(entry, address):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        with pytest.raises(StorageError, match="can't be served"), served(entry, address):
            pass
    lines = set(text.splitlines())
    assert {
        'echomesh_pipeline_up{pipeline="big"} 1.0',
        'echomesh_pipeline_rows_total{output="out",pipeline="big"} 7.0',
        'echomesh_pipeline_lag_events{output="out",pipeline="big"} 5.0',
        'echomesh_pipeline_batch_seconds{output="out",pipeline="big"} 0.25',
        'echomesh_pipeline_restarts_total{output="out",pipeline="big"} 2.0',
        'echomesh_pipeline_topic_lag_events{output="out",pipeline="big",topic="a"} 5.0',
    } <= lines
    for wrong in ("nowhere", "host:", "host:99999"):
        with pytest.raises(UsageError, match="give HOST:PORT"), served(entry, wrong):
            pass
    with served(entry, None):
        pass
