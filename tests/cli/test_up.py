"""`echomesh up`: a server as its users run it."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from echomesh import Event
from echomesh.errors import ConnectionLost
from echomesh.log import LogReader
from echomesh.mesh.client import session
from tests.cli.conftest import PATIENCE_S, Mesh
from tests.cli.quick import Quick
from tests.cli.server_support import ServerProcess

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) +echomesh\.\S+: \S.*")


def event(number: int) -> Event:
    return Event(type="order", source="/test", id=str(number), data={"number": number})


def test_it_says_one_line_when_it_serves_and_stops_in_order(mesh: Mesh, shm_dir: Path) -> None:
    with ServerProcess(mesh.environment, shm_dir / "data", "--http", "127.0.0.1:0") as server:
        assert server.line.count("\n") == 1
        with urlopen(f"{server.http}/health") as answer:
            assert json.load(answer)["status"] == "ok"
        assert server.stop() == 0
        lines = server.log.splitlines()
    assert [line for line in lines if LOG_LINE.fullmatch(line) is None] == []
    assert "no access file: only this machine can connect" in lines[0]
    assert "stopping reason=SIGTERM" in lines[-2]
    with LogReader(shm_dir / "data") as log:
        assert log.topics() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_every_signal_that_asks_is_heard(mesh: Mesh, shm_dir: Path, number: int) -> None:
    with ServerProcess(mesh.environment, shm_dir / "data") as server:
        assert server.stop(number) == 0
        assert f"stopping reason={signal.Signals(number).name}" in server.log


@pytest.mark.fault
def test_no_acknowledged_event_is_lost_by_a_stop_under_load_and_the_port_is_free_at_once(
    mesh: Mesh, shm_dir: Path
) -> None:
    acknowledged: dict[int, int] = {}

    async def publish(address: str, first: int) -> None:
        async with session(address, client_id=f"shop-{first}", max_outage=60.0) as shop:
            for number in range(first, first + 1000):
                acknowledged[number] = await shop.publish("orders", event(number))

    async def restarts(server: ServerProcess) -> None:
        for reached in (300, 1000, 2000):
            while True:
                await asyncio.sleep(0.001)
                if len(acknowledged) > reached:
                    break
            assert await asyncio.to_thread(server.stop) == 0
            await asyncio.to_thread(server.again)

    async def run(server: ServerProcess) -> None:
        starts = (0, 1000, 2000)
        await asyncio.gather(restarts(server), *(publish(server.address, first) for first in starts))

    with ServerProcess(mesh.environment, shm_dir / "data") as server:
        asyncio.run(run(server))
        server.stop()
    assert len(acknowledged) == 3000
    with LogReader(shm_dir / "data") as log:
        stored: dict[int, list[int]] = {}
        for offset, _, _, encoded in log.topic("orders").read(0, max_bytes=1 << 30):
            stored.setdefault(int(Event.decode(encoded).id), []).append(offset)
    assert stored == {number: [offset] for number, offset in acknowledged.items()}


def test_clients_are_told_that_it_stops(mesh: Mesh, shm_dir: Path) -> None:
    async def listen(server: ServerProcess) -> str:
        async with session(server.address, client_id="reader", max_outage=0.0) as reader:
            subscription = await reader.subscribe("orders")
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            with pytest.raises(ConnectionLost) as caught:
                await anext(subscription)
            assert await stopping == 0
            return str(caught.value)

    with ServerProcess(mesh.environment, shm_dir / "data") as server:
        assert "closed" in asyncio.run(listen(server))


def test_it_may_open_as_many_files_as_it_needs_and_says_if_not(mesh: Mesh, shm_dir: Path) -> None:
    config = shm_dir / "echomesh.toml"
    config.write_text("[mesh]\nmax_connections = 3000\n")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        server = ServerProcess(mesh.environment, shm_dir / "data", "--config", str(config))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with server:
        soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft >= min(before[1], 3000)
        told = "open files are limited" in server.log
        assert told == (before[1] < 3000)


def test_signals_that_come_again_and_again_end_it_all_the_same(mesh: Mesh, shm_dir: Path) -> None:
    with ServerProcess(mesh.environment, shm_dir / "data") as server:
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
        assert server.process.returncode in (0, -signal.SIGTERM)
        server.again()
        assert server.stop() == 0


def test_who_has_the_data_directory_is_said(mesh: Mesh, quick: Quick, shm_dir: Path) -> None:
    with ServerProcess(mesh.environment, shm_dir / "data") as server:
        result = quick("up", "--data", str(shm_dir / "data"), "--listen", "127.0.0.1:0")
        assert (result.returncode, result.stdout) == (1, "")
        told = result.stderr.splitlines()[-1]
        assert told.startswith(f"error: {shm_dir}/data is written by process {server.process.pid} (")
        assert "up --data" in told


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--listen", "0.0.0.0:0"], 1, "without an access file a server serves this machine alone"),
        (
            ["--http", "0.0.0.0:0", "--listen", "127.0.0.1:0"],
            1,
            "error: http.listen = 0.0.0.0:0: without an access file",
        ),
        (["--listen", "nonsense"], 2, "error: --listen nonsense: it has no port; it takes HOST:PORT such as"),
        (["--access", "nowhere.toml"], 1, "nowhere.toml: there is no such file"),
        (["--config", "nowhere.toml"], 1, "nowhere.toml: it can't be read: No such file"),
    ],
)
def test_what_keeps_it_from_serving_is_one_sentence(
    quick: Quick, shm_dir: Path, options: list[str], code: int, said: str
) -> None:
    result = quick("up", "--data", str(shm_dir / "data"), *options)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (shm_dir / "data").exists()


def test_the_file_and_the_options_go_together(mesh: Mesh, shm_dir: Path) -> None:
    config = shm_dir / "echomesh.toml"
    config.write_text('listen = "127.0.0.1:1"\ndata = "elsewhere"\n[mesh]\nheartbeat = "2s"\n')
    with ServerProcess(mesh.environment, shm_dir / "data", "--config", str(config)) as server:
        assert not (shm_dir / "elsewhere").exists()
        assert server.stop() == 0


def test_it_ends_with_its_input_when_it_is_told_to(mesh: Mesh, shm_dir: Path) -> None:
    options = ("up", "--data", str(shm_dir / "data"), "--listen", "127.0.0.1:0", "--until-input-ends")
    with mesh.popen(*options, stdin=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("echomesh serves")
        _, log = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0
    assert "stopping reason=end of input" in log
