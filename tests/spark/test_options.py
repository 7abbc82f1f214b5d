"""The options of the source: each of them, good and bad."""

from __future__ import annotations

from typing import Any

import pytest

from echomesh.errors import BadOption, UsageError
from echomesh.spark import options
from echomesh.spark.columns import SOURCE_SCHEMA, chosen
from echomesh.spark.options import Place, parse

LOCAL = {"subscribe": "a", "path": "/data"}
REMOTE = {"subscribe": "a", "server": "mesh.example:4889", "clientId": "c", "passwordFile": "/secret"}


def test_what_is_not_said_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse(LOCAL)
    assert (found.path, found.server, found.environment) == ("/data", None, "TST")
    assert (found.starting, found.ending, found.max_offsets, found.min_partitions) == (None, None, None, None)
    assert (found.max_bytes, found.fail_on_data_loss) == (1 << 30, True)
    monkeypatch.setenv("ECHOMESH_DATA", "/elsewhere")
    assert parse({"subscribe": "a"}).path == "/elsewhere"
    assert parse(LOCAL).path == "/data"
    assert parse(REMOTE).path is None


@pytest.mark.parametrize(
    ("option", "value", "field", "parsed"),
    [
        ("subscribe", " /orders/** , b,b,", "subscribe", ("orders/**", "b")),
        ("ENVIRONMENT", "PRD", "environment", "PRD"),
        ("startingoffsets", "LATEST", "starting", Place("latest")),
        ("startingOffsets", '{"/a": 3, "b": "earliest"}', "starting", Place(topics={"a": 3, "b": "earliest"})),
        ("endingOffsets", '{"a": "latest"}', "ending", Place(topics={"a": "latest"})),
        ("startingTimestamp", "1700000000000", "starting", Place(time_us=1_700_000_000_000_000)),
        ("endingTimestamp", "2026-07-01T12:00:00.000001+02:00", "ending", Place(time_us=1_782_900_000_000_001)),
        ("startingTimestamp", "1970-01-02", "starting", Place(time_us=86_400_000_000)),
        ("maxOffsetsPerTrigger", "10", "max_offsets", 10),
        ("maxBytesPerTrigger", "64m", "max_bytes", 64 << 20),
        ("maxBytesPerTrigger", "2 GiB", "max_bytes", 2 << 30),
        ("maxBytesPerTrigger", "1000", "max_bytes", 1000),
        ("minPartitions", "7", "min_partitions", 7),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("failOnDataLoss", "true", "fail_on_data_loss", True),
    ],
)
def test_a_good_option_is_understood(option: str, value: str, field: str, parsed: Any) -> None:
    assert getattr(parse({**LOCAL, option: value}), field) == parsed


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("subscribe", "", "name topics or filters"),
        ("subscribe", "a/b*", "mixes '*' with other characters"),
        ("environment", " ", "it is empty"),
        ("startingOffsets", "first", "give earliest or latest, or offsets by topic"),
        ("startingOffsets", "[1]", "give earliest or latest"),
        ("startingOffsets", "{}", "give earliest or latest"),
        ("startingOffsets", '{"a": -1}', "topic 'a' has -1"),
        ("startingOffsets", '{"a": true}', "topic 'a' has True"),
        ("startingOffsets", '{"a*": 1}', "not a topic"),
        ("endingOffsets", "earliest", "give latest"),
        ("startingTimestamp", "yesterday", "give milliseconds since 1970"),
        ("startingTimestamp", "9" * 30, "give a time from 1970 to 2262"),
        ("startingTimestamp", "9223372036854776", "give a time from 1970 to 2262"),
        ("endingTimestamp", "9999-12-31T00:00:00Z", "give a time from 1970 to 2262"),
        ("endingTimestamp", "1969-12-31T23:59:59Z", "give a time from 1970 to 2262"),
        ("maxOffsetsPerTrigger", "0", "a whole number from 1 on"),
        ("maxOffsetsPerTrigger", "many", "a whole number from 1 on"),
        ("maxBytesPerTrigger", "1.5g", "give bytes"),
        ("minPartitions", "-3", "a whole number from 1 on"),
        ("failOnDataLoss", "no", "give true or false"),
        ("clientId", "me", "is of no use without server"),
        ("tls", "true", "is of no use without server"),
        ("server", "mesh.example:4889", "and path exclude each other"),
    ],
)
def test_a_bad_value_is_named_with_what_is_good(option: str, value: str, message: str) -> None:
    with pytest.raises(BadOption, match="option") as failure:
        parse({**LOCAL, option: value})
    assert failure.value.option == option
    assert message in str(failure.value)


def test_an_unknown_option_comes_with_the_list_of_good_ones() -> None:
    with pytest.raises(BadOption, match="'startingoffset' is unknown") as failure:
        parse({**LOCAL, "startingOffset": "latest"})
    assert all(name in str(failure.value) for name in options.NAMES)
    with pytest.raises(BadOption, match="subscribe takes filters"):
        parse({**LOCAL, "subscribePattern": "a.*"})


def test_a_server_wants_to_know_who_asks_and_may_want_no_password() -> None:
    assert parse({key: value for key, value in REMOTE.items() if key != "passwordFile"}).password_file is None
    with pytest.raises(BadOption, match="'clientId' is missing"):
        parse({key: value for key, value in REMOTE.items() if key != "clientId"})
    for address in ("mesh.example", ":4889", "mesh.example:0", "mesh.example:port"):
        with pytest.raises(BadOption, match="give host:port"):
            parse({**REMOTE, "server": address})


def test_some_go_with_others_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECHOMESH_DATA", raising=False)
    with pytest.raises(BadOption, match="or server is missing"):
        parse({"subscribe": "a"})
    with pytest.raises(BadOption, match="'subscribe' is missing"):
        parse({"path": "/data"})
    with pytest.raises(BadOption, match="startingOffsets exclude each other"):
        parse({**LOCAL, "startingOffsets": "latest", "startingTimestamp": "1"})
    for name in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(BadOption, match="a stream has no end"):
            parse({**LOCAL, name: "1"}, streaming=True)
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(BadOption, match="is for streams"):
            parse({**LOCAL, name: "1"}, streaming=False)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(BadOption) as failure:
        parse({**LOCAL, "startingOffsets": "x" * 100_000})
    assert len(str(failure.value)) < 300


def test_a_schema_may_choose_columns_and_not_change_them() -> None:
    from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

    assert list(chosen(SOURCE_SCHEMA)) == SOURCE_SCHEMA.names
    asked = StructType([StructField("id", StringType()), StructField("offset", LongType(), nullable=False)])
    assert chosen(asked) == {"id": True, "offset": False}
    for wrong in (
        StructField("id", LongType()),
        StructField("identity", StringType()),
        StructField("subject", StringType(), nullable=False),
        StructField("attributes", MapType(StringType(), StringType(), valueContainsNull=False)),
    ):
        with pytest.raises(UsageError):
            chosen(StructType([wrong]))
