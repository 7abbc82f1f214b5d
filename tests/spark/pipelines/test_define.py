"""What a pipeline may say, and what is said of one with a mistake in it: file, line and reason. No Spark runs here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from echomesh.errors import BadPipeline, LocalPath, UnknownPipeline, UsageError
from echomesh.spark import Pipeline, batches, dead_letters, pipeline, table, topic
from echomesh.spark.pipelines.intervals import milliseconds
from echomesh.spark.pipelines.load import choose, load
from echomesh.spark.pipelines.place import Place

HEAD = "from echomesh.spark import pipeline, topic\n"
GOOD = HEAD + "@pipeline(inputs={'orders': 'orders/**'}, output=topic('alerts'))\ndef big(orders):\n    return orders\n"


def made(**given: object) -> Pipeline:
    chosen = {"inputs": {"orders": "orders/**"}, "output": topic("alerts"), **given}
    return pipeline(**chosen)(lambda orders: orders)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        ("def f(:\n", 1, "this is no Python"),
        ("x = 1\n  y = 2\n", 2, "this is no Python: unexpected indent"),
        ("import json\nimport nowhere_at_all\n", 2, "No module named 'nowhere_at_all': is it installed"),
        ("from echomesh.spark import pipline\n", 1, "ImportError: cannot import name 'pipline'"),
        ("x = 1\n\nundefined\n", 3, "NameError: name 'undefined' is not defined"),
        ("x = 1\n", 1, "there is no pipeline in it"),
        ("\ndef big(orders):\n    return orders\n", 2, "there is no @pipeline above big"),
        ("import sys\nsys.exit(3)\n", 2, "it ends Python"),
        (GOOD + GOOD.replace(HEAD, ""), 5, "there is a pipeline big in line 2 already"),
        (GOOD.replace("inputs=", "input="), 2, "unexpected keyword argument 'input'"),
        (GOOD.replace("def big(orders)", "def big(order)"), 2, "the function takes order, and the inputs are orders"),
        (GOOD.replace("def big(orders)", "def big(orders, more)"), 2, "takes orders, more, and the inputs are orders"),
        (GOOD.replace("def big(orders)", "def big()"), 2, "the function takes nothing"),
        (GOOD.replace("orders/**'}", "orders/a*'}"), 2, "input 'orders': .* mixes '\\*' with other characters"),
        (GOOD.replace("'orders/**'}", "7}"), 2, "input 'orders' is 7"),
        (GOOD.replace("{'orders': 'orders/**'}", "'orders/**'"), 2, "inputs are topics or filters by name"),
        (GOOD.replace("topic('alerts')", "'alerts'"), 2, "output is 'alerts': give topic"),
        (GOOD.replace("topic('alerts')", "topic('a//b')"), 2, "empty segment"),
        (GOOD.replace("topic('alerts')", "{}"), 2, "there is no output"),
        (GOOD.replace("topic('alerts'))", "topic('alerts'),\n  trigger='soon')"), 2, "trigger 'soon' is no time span"),
        (GOOD.replace("topic('alerts'))", "topic('alerts'), watermark=5)"), 2, "watermark 5 is no time span"),
        (GOOD.replace("topic('alerts'))", "topic('alerts'), name='a b')"), 2, "'a b' is no name of a pipeline"),
        (GOOD.replace("topic('alerts'))", "topic('alerts'), columns='id')"), 2, "columns is a list of names"),
        (GOOD.replace("topic('alerts'))", "topic('alerts'), start='now')"), 2, "start = 'now' is not one of"),
        (
            GOOD.replace("topic('alerts'))", "topic('alerts'), output_mode='all')"),
            2,
            "output_mode = 'all' is not one of",
        ),
    ],
    ids=lambda value: re.sub(r"\W+", "-", value)[:40] if isinstance(value, str) else None,
)
def test_a_mistake_in_a_file_is_told_with_its_line_and_reason(
    tmp_path: Path, code: str, line: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.py").write_text(code)
    with pytest.raises(BadPipeline, match=reason) as caught:
        load("flow.py")
    assert (caught.value.file, caught.value.line) == ("flow.py", line)
    assert str(caught.value).startswith(f"flow.py:{line}: ")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match=r"nowhere\.py: there is no such file"):
        load(tmp_path / "nowhere.py")
    with pytest.raises(BadPipeline, match="can't be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "odd.py").write_bytes(b"\xff\xfe")
    with pytest.raises(BadPipeline, match="can't be read: 'utf-8' codec"):
        load(tmp_path / "odd.py")


def test_one_of_several_pipelines_is_chosen_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "flows.py"
    file.write_text(GOOD + GOOD.replace(HEAD, "").replace("def big", "def small"))
    assert choose(file, "small").name == "small"
    with pytest.raises(UnknownPipeline, match=r"has 2 pipelines, big, small: choose one as in .*flows\.py:big"):
        choose(file)
    with pytest.raises(UnknownPipeline, match="has no pipeline huge: there is big, small"):
        choose(file, "huge")


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_a_pipeline.py").write_text("WHERE = 'orders/eu'\n")
    code = "from beside_a_pipeline import WHERE\n" + GOOD.replace("'orders/**'", "WHERE")
    (tmp_path / "flow.py").write_text(code)
    assert choose(tmp_path / "flow.py").inputs == {"orders": "orders/eu"}


def test_a_pipeline_says_what_it_is_and_is_its_function() -> None:
    found = made(trigger="500 ms", watermark="2 minutes", name="big", options={"failOnDataLoss": False})
    assert (found.name, found.trigger_ms, found.watermark) == ("big", 500, ("time", 120_000))
    assert found.options == {"failOnDataLoss": "false"}
    assert made(trigger="once", name="b").trigger_ms is None
    assert made(watermark=("timestamp", "5 s"), name="b").watermark == ("timestamp", 5000)
    assert found("rows") == "rows"  # type: ignore[arg-type, comparison-overlap]
    assert "define" in found.file


@pytest.mark.parametrize(("text", "ms"), [("1 second", 1000), ("500ms", 500), ("1.5 s", 1500), ("2 hours", 7_200_000)])
def test_time_spans_are_those_of_spark(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


def test_outputs_say_what_they_are() -> None:
    assert [str(each) for each in (topic("a"), topic(), table("t"), dead_letters(), batches(print, "a list"))] == [
        "topic a", "topics of the rows", "delta table t", "topics dead/**", "a list",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no format 'csv': there are delta, iceberg, parquet"):
        table("t", format="csv")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="partition_by is a list of columns"):
        table("t", partition_by="date")
    with pytest.raises(UsageError, match="a table needs a name"):
        table("")


def test_what_a_cluster_cant_see_is_refused() -> None:
    remote = {"server": "a:1", "home": "/h", "master": "spark://host:7077"}
    with pytest.raises(LocalPath, match="the checkpoint /h/big/checkpoint is on this machine, and the executors"):
        Place(**remote).check(made(name="big"))  # type: ignore[arg-type]
    place = Place(**remote, checkpoint="s3a://bucket/c")  # type: ignore[arg-type]
    place.check(made(name="big"))
    assert place.checkpoints("big") == "s3a://bucket/c/big"
    with pytest.raises(LocalPath, match="the table /h/tables/t"):
        place.check(made(name="big", output=table("t")))
    with pytest.raises(LocalPath, match="the table of output b /t"):
        place.check(made(name="big", output={"a": topic("x"), "b": batches(print, tables=[table("/t")])}))
    Place(**remote, shared=True).check(made(name="big", output=table("t")))  # type: ignore[arg-type]
    with pytest.raises(LocalPath, match="the log /d"):
        Place(data="/d", master="yarn", checkpoint="hdfs://c").check(made(name="big"))
    Place(data="/d").check(made(name="big"))


def test_a_place_is_a_directory_a_server_or_both() -> None:
    with pytest.raises(UsageError, match="--data"):
        Place()
    with pytest.raises(UsageError, match="--home"):
        _ = Place(server="a:1").homes
    both = Place(data="/d", server="a:1", client_id="c", password_file="/p", environment="VAL")
    assert both.source_options() == {"path": "/d", "environment": "VAL"}
    assert both.sink_options() == {"server": "a:1", "clientId": "c", "passwordFile": "/p", "environment": "VAL"}
    assert (str(both.homes), both.table_path("t"), both.table_path("/x")) == ("/d/pipelines", "/d/tables/t", "/x")
    assert Place(data="/d", tables="s3a://b").table_path("t") == "s3a://b/t"
