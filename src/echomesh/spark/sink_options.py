"""The options of the sink, and the columns that it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import BinaryType, StringType, StructType

from echomesh.errors import BadOption, BadTopic, UsageError
from echomesh.spark.columns import SINK_COLUMNS, TYPES
from echomesh.spark.options import ENVIRONMENT
from echomesh.topics import parse_topic

NAMES: Final = (
    "topic",
    "path",
    "server",
    "clientId",
    "passwordFile",
    "tls",
    "environment",
    "onStaleCheckpoint",
    "txnAppId",
    "txnVersion",
)
_SPELLED: Final = {name.lower(): name for name in NAMES}
_SPARKS_OWN: Final = ("checkpointlocation", "queryname", "outputmode", "trigger")
_ENVIRONMENTS: Final = ("TST", "VAL", "PRD")


@dataclass(frozen=True)
class SinkOptions:
    """What a query said, checked. One of `path` and `server` is there."""

    topic: str | None
    path: str | None
    server: str | None
    client_id: str | None
    password_file: str | None
    tls: str | None
    environment: str
    republish: bool
    txn_app_id: str | None
    txn_version: int


def parse(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write; `BadOption` names the first that is wrong. Keys may be written in any case."""
    given = {key.lower(): value.strip() for key, value in options.items() if key.lower() not in _SPARKS_OWN}
    for key, value in given.items():
        if key not in _SPELLED:
            raise BadOption(key, "is unknown", NAMES)
        if not value:
            raise BadOption(_SPELLED[key], "is empty")
    server = given.get("server")
    path = given.get("path") or (None if server else os.environ.get("ECHOMESH_DATA"))
    _check_way(given, path, server)
    environment = given.get("environment", ENVIRONMENT)
    if environment not in _ENVIRONMENTS:
        raise BadOption("environment", f"= {environment!r} is not one of {', '.join(_ENVIRONMENTS)}")
    return SinkOptions(
        _topic(given.get("topic")),
        path,
        server,
        given.get("clientid"),
        given.get("passwordfile"),
        given.get("tls"),
        environment,
        _republish(given.get("onstalecheckpoint"), streaming),
        *_transaction(given, streaming),
    )


def _check_way(given: Mapping[str, str], path: str | None, server: str | None) -> None:
    if server and "path" in given:
        raise BadOption("server", "and path exclude each other: rows go over a server, or into a directory")
    if not server and not path:
        raise BadOption("server", "or path is missing: host:port of a server, or a data directory", NAMES)
    if server and "clientid" not in given:
        raise BadOption("clientId", "is missing: a server wants to know who writes")
    for name in ("clientId", "passwordFile", "tls"):
        if not server and name.lower() in given:
            raise BadOption(name, "is of no use without server")


def _topic(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return parse_topic(name)
    except BadTopic as error:
        raise BadOption("topic", f"= {name[:80]!r} can't be used: {error}") from None


def _republish(value: str | None, streaming: bool) -> bool:
    if value is None:
        return False
    if not streaming:
        raise BadOption("onStaleCheckpoint", "is for streams: a batch has no checkpoint")
    if value.lower() not in ("fail", "republish"):
        raise BadOption("onStaleCheckpoint", f"= {value[:80]!r} can't be used: give fail or republish")
    return value.lower() == "republish"


def _transaction(given: Mapping[str, str], streaming: bool) -> tuple[str | None, int]:
    app, version = given.get("txnappid"), given.get("txnversion")
    if app is None and version is None:
        return None, 0
    if streaming:
        raise BadOption("txnAppId", "is for batch writes: a stream has its query id and its batch ids")
    if app is None or version is None:
        raise BadOption("txnAppId", "and txnVersion go together")
    if not version.isdecimal() or int(version) >= 1 << 62:
        raise BadOption("txnVersion", f"= {version[:80]!r} can't be used: give a whole number from 0 on")
    if len(app.encode()) > 128:
        raise BadOption("txnAppId", "has at most 128 bytes")
    return app, int(version)


def check_columns(schema: StructType, chosen: SinkOptions) -> None:
    """Raises `UsageError` for columns that can't be written as they are."""
    names = [field.name.lower() for field in schema.fields]
    for field, name in zip(schema.fields, names, strict=True):
        if name in TYPES and name not in SINK_COLUMNS:
            raise UsageError(f"column {field.name!r} is given by the log: drop it before you write")
        if name not in SINK_COLUMNS:
            raise UsageError(f"no column {field.name!r}: a write may have {', '.join(SINK_COLUMNS)}")
        kinds = (BinaryType(), StringType()) if name == "data" else (TYPES[name],)
        if not any(field.dataType.simpleString() == kind.simpleString() for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise UsageError(f"column {field.name!r} is {field.dataType.simpleString()}: cast it to {wanted}")
    if "data" not in names:
        raise UsageError("there is no column 'data': it is what an event carries, binary or string")
    if chosen.topic is None and "topic" not in names:
        raise UsageError("no topic: set the option topic, or give a column 'topic'")
