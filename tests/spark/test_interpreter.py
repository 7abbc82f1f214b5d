"""Workers run the Python of the driver, and find PySpark where it is installed."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from echomesh.spark.interpreter import find_python
from tests.native.support.processes import eventually

HOME = Path(pyspark.__file__).resolve().parent
SET = [name for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name in os.environ]


def told(shim: str, program: str, paths: list[str]) -> list[str]:
    """What the shim's Python prints, started with these paths for its packages."""
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    found = subprocess.run([shim, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def gone(process: int) -> bool:
    """Whether it has ended."""
    return not Path(f"/proc/{process}").exists()


def test_archives_of_spark_are_left_out_and_nothing_else(tmp_path: Path) -> None:
    archive = str(HOME / "python" / "lib" / "pyspark.zip")
    own = [str(tmp_path / "with space"), str(tmp_path / "*"), str(tmp_path / "it's"), f"{HOME}-other"]
    program = "import sys, pyspark; print(sys.executable, pyspark.__file__, *sys.path, sep='\\n')"
    python, module, *path = told(find_python({}), program, [archive, *own, str(HOME / "jars" / "spark-core.jar")])
    assert python == sys.executable
    assert module == pyspark.__file__
    assert path[1:5] == own
    assert not [each for each in path if each.startswith(f"{HOME}/")]


def test_arguments_and_no_paths_at_all_go_through() -> None:
    assert told(find_python({}), "import sys; print(sys.argv)", [])[0] == "['-c']"
    said = subprocess.run([find_python({}), "-c", "import sys; print(sys.argv[1:])", "a b", ""], capture_output=True)
    assert said.stdout.decode().strip() == "['a b', '']"


def test_libraries_start_one_thread_unless_more_are_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os; print(os.environ['OMP_NUM_THREADS'])"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert told(find_python({}), program, []) == ["1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert told(find_python({}), program, []) == ["4"]


def test_a_worker_whose_connection_was_closed_ends_without_a_word() -> None:
    """As Spark does it: it asks for a worker, and closes the connection before it has said anything."""
    command = [find_python({}), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
    with tempfile.TemporaryDirectory() as short:  # the name of a socket may not be long
        environment = {
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": short,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        }
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as factory:
            assert factory.stdout is not None
            path = factory.stdout.read(int.from_bytes(factory.stdout.read(4), "big")).decode()
            for _ in range(3):
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(path)
                    worker = int.from_bytes(line.recv(4, socket.MSG_WAITALL), "big")
                eventually(functools.partial(gone, worker))
            said = factory.communicate()[1]
    assert said == b""


def test_another_spark_keeps_its_own_sources(tmp_path: Path) -> None:
    assert find_python({"SPARK_HOME": str(tmp_path)}) == sys.executable
    (tmp_path / "link").symlink_to(HOME)
    same = find_python({"SPARK_HOME": str(tmp_path / "link")})
    assert same != sys.executable
    # Spark names its archives by the name that it was given.
    archive = str(tmp_path / "link" / "python" / "lib" / "pyspark.zip")
    assert told(same, "import pyspark; print(pyspark.__file__)", [archive]) == [pyspark.__file__]


def test_where_nothing_may_run_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shim = Path(find_python({}))
    assert shim.is_relative_to(tmp_path)
    shim.chmod(0o644)
    assert find_python({}) == sys.executable


@pytest.mark.skipif(bool(SET), reason="the environment says what workers are to run")
def test_workers_of_a_session_take_what_is_installed(spark: SparkSession) -> None:
    def where(_: Iterable[int]) -> Iterable[str]:
        import pyspark as found

        yield found.__file__

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(where).collect() == [pyspark.__file__]
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == find_python()
