"""A standalone cluster: executors that have nothing of ours but an archive, and reach the log over TCP with tickets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from echomesh.errors import UsageError
from echomesh.spark import jar, submit
from tests.spark.cluster import BARE, Cluster
from tests.spark.node import PASSWORD, NodeProcess, numbers_of
from tests.support.counts import full_only
from tests.support.repository import ROOT

pytestmark = pytest.mark.spark


def drive(cluster: Cluster, node: NodeProcess, deps: Path, place: Path) -> dict[str, Any]:
    quick = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
    }
    asked = {"master": cluster.master, "config": quick | submit.config(deps), "options": node.options}
    site = Path(pyspark.__file__).parents[1]
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT), str(site)))
    with (place / "driver.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "tests.spark.cluster_driver", json.dumps(asked | {"place": str(place)})],
            env=dict(os.environ, PYTHONPATH=paths, PYSPARK_PYTHON=str(BARE), PYSPARK_DRIVER_PYTHON=sys.executable),
            stdout=log, stderr=log, cwd=ROOT, check=False,
        )  # fmt: skip
    told = place / "result"
    assert told.exists(), (place / "driver.log").read_text()[-5000:]
    found: dict[str, Any] = json.loads(told.read_text())
    return found


@full_only
def test_executors_read_and_write_with_tickets_and_nothing_installed(cluster: Cluster, tmp_path: Path) -> None:
    place = tmp_path / "driver"
    place.mkdir()
    deps = submit.archive(tmp_path / "deps.tar.gz")
    with NodeProcess(tmp_path / "node") as node:
        node.publish("in", range(300))
        result = drive(cluster, node, deps, place)
        assert result["read"] == list(range(300))
        assert [len(node.events(f"copy/{number}")) for number in range(3)] == [100, 100, 100]
        # One task of each batch slept for a minute; its speculative copy was quick, and counted once.
        assert numbers_of(node.events("out")) == list(range(300))
        logs = [path for path in tmp_path.rglob("*") if path.is_file() and path.name in ("stderr", "stdout")]
        logs += [*cluster.place.glob("*.log"), place / "driver.log", node.log]
        texts = {str(path): path.read_text(errors="replace") for path in logs}
    for task in result["tasks"]:
        assert "/work-" in task["file"], "executors use what the archive brought"
        assert "/deps/" in task["file"]
    texts |= {f"task {task['pid']}": task["seen"] for task in result["tasks"]} | {"plan": result["plan"]}
    for name, text in texts.items():
        assert PASSWORD not in text, name
        assert "emt1." not in text, name
    assert any("work-" in name for name in texts)


def test_an_archive_has_other_packages_with_what_they_need(tmp_path: Path) -> None:
    made = submit.archive(tmp_path / "deps.tar.gz", arrow=False, packages=["pandas"])
    with tarfile.open(made) as packed:
        found = {name.split("/")[0] for name in packed.getnames()}
    assert {"echomesh", "msgspec", "numpy", "pandas", "dateutil"} <= found
    assert not found & {"pyarrow", "pyspark", "pytest"}
    with pytest.raises(UsageError, match="no-such-package is not installed here"):
        submit.archive(tmp_path / "deps.tar.gz", packages=["no-such-package"])


def test_an_archive_can_be_made_of_wheels_for_another_python(tmp_path: Path) -> None:
    wheels = []
    for name in (
        "echomesh-1.0-cp312-cp312-linux_x86_64",
        "msgspec-1-cp312-cp312-any",
        "typing_extensions-4-py3-none-any",
    ):
        wheels.append(tmp_path / f"{name}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as packed:
            packed.writestr(f"{name.split('-')[0]}/__init__.py", "")
    made = submit.archive(tmp_path / "deps.tar.gz", wheels=wheels, python="3.12")
    with tarfile.open(made) as packed:
        assert sorted(packed.getnames()) == [
            "echomesh/__init__.py",
            "msgspec/__init__.py",
            "typing_extensions/__init__.py",
        ]
    with pytest.raises(UsageError, match=r"no wheel for Python 3\.13"):
        submit.archive(tmp_path / "deps.tar.gz", wheels=wheels, python="3.13")
    with pytest.raises(UsageError, match="no wheel of msgspec"):
        submit.archive(tmp_path / "deps.tar.gz", wheels=wheels[:1], python="3.12")
    with pytest.raises(UsageError, match=r"give the wheels for 3\.9"):
        submit.archive(tmp_path / "deps.tar.gz", python="3.9")
    with pytest.raises(UsageError, match=r"tar\.gz"):
        submit.archive(tmp_path / "deps.zip")
    assert submit.arguments(made) == [
        "--archives", f"{made}#deps", "--conf", "spark.executorEnv.PYTHONPATH=./deps",
        "--conf", "spark.sql.streaming.checkpointFileManagerClass=echomesh.Checkpoints", "--jars", jar(),
    ]  # fmt: skip
