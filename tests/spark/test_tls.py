"""Source and sink over a server that wants TLS."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echomesh.errors import BadOption, ConnectionLost
from echomesh.log import arrow
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.direct import Direct
from echomesh.mesh.log_bodies import AskTopics
from echomesh.spark import options, remote
from echomesh.spark.remote import ServerReach
from echomesh.spark.trust import read_trust
from tests.spark.node import NodeProcess, numbers_of
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificate of the node."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A server that speaks TLS alone."""
    certificate = authority.issue("node", "127.0.0.1")
    with NodeProcess(tmp_path_factory.mktemp("secure"), tls=(certificate, authority.pem)) as started:
        started.publish("in", range(100))
        yield started


def chosen(node: NodeProcess, **changes: str) -> options.SourceOptions:
    return options.parse({"subscribe": "in", **node.options, **changes})


def test_rows_are_read_and_written_over_tls(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    rows = spark.read.format("echomesh").options(subscribe="in", **node.options).load()
    rows.select("data").write.format("echomesh").mode("append").options(topic="batch", **node.options).save()
    assert numbers_of(node.events("batch")) == list(range(100))
    stream = spark.readStream.format("echomesh").options(subscribe="in", startingOffsets="earliest", **node.options)
    writer = stream.load().select("data").writeStream.format("echomesh").options(topic="stream", **node.options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert numbers_of(node.events("stream")) == list(range(100))


def test_a_task_brings_the_certificates_along(node: NodeProcess, tmp_path: Path) -> None:
    copy = tmp_path / "ca.pem"
    copy.write_bytes(Path(node.options["tls"]).read_bytes())
    reach = ServerReach(chosen(node, tls=str(copy)))
    carried = pickle.dumps(reach.way())
    reach.close()
    copy.unlink()
    way = pickle.loads(carried)
    assert "CERTIFICATE" not in repr(way)
    builder = arrow.Builder("in", ["offset"])
    try:
        given = [*way.scan("in", 0, 100, builder), *builder.rest()]
        assert arrow.table(given, ["offset"])["offset"].to_pylist() == list(range(100))
    finally:
        while remote._sessions:
            remote._sessions.popitem()[1].close()


def test_a_server_that_is_not_trusted_is_told_at_once(node: NodeProcess, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    for tls in (str(other.pem), "true"):
        with pytest.raises(ConnectionLost, match="its certificate is not trusted"):
            ServerReach(chosen(node, tls=tls))


def test_who_comes_without_tls_is_not_served(node: NodeProcess) -> None:
    plain = Direct(node.address, "spark", password="unused", purpose=Purpose.SUBSCRIBE, outage_s=0.0)
    with pytest.raises(ConnectionLost):
        plain.ask(Command.TOPICS_REQUEST, AskTopics("", "", "**"))
    plain.close()


def test_what_tls_may_be_is_told(tmp_path: Path) -> None:
    assert [read_trust(text) for text in (None, "false", "True")] == [False, False, True]
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    for path, why in (
        (tmp_path / "none.pem", "No such file"),
        (empty, "has no certificates"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(BadOption, match=why):
            read_trust(str(path))
