"""One Spark session for all tests, with settings that make small queries quick."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import Cluster
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


PATIENCE_S = 600  # a first query that takes seconds takes minutes on a machine that is busy with others


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine is no reason to fail."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Real Spark on this machine."""
    from echomesh.spark import session

    # The workers are to import what is tested here, from wherever pytest was started.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    place = tmp_path_factory.mktemp("spark")
    log4j = place / "log4j2.properties"
    log4j.write_text("rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
                     "appender.console.type = Console\nappender.console.name = console\n"
                     "appender.console.target = SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
                     "appender.console.layout.pattern = %p %c{1}: %m%n%ex\n")  # fmt: skip
    java = f"{QUICK['spark.driver.extraJavaOptions']} -Dlog4j2.configurationFile=file:{log4j}"
    made = session(
        "tests",
        master="local[2]",
        config={**QUICK, "spark.driver.extraJavaOptions": java, "spark.sql.warehouse.dir": place / "warehouse",
                "spark.local.dir": place / "local"},
    )  # fmt: skip
    yield made
    made.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that runs."""
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where a test has its log."""
    return tmp_path / "data"
