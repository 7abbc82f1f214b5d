"""`echomesh bridge`: two servers in processes of their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from echomesh import Event
from echomesh.mesh.client import session
from echomesh.mesh.passwords import PasswordHash
from tests.cli.conftest import Mesh
from tests.cli.quick import Quick
from tests.cli.server_support import ServerProcess

SERVER = """
[clients.mesh-1]
environments = ["TST"]
publish = ["**"]
subscribe = ["**"]
server = true
"""


def says(quick: Quick, *arguments: str) -> str:
    result = quick(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_bridge_is_made_listed_and_removed(mesh: Mesh, quick: Quick, shm_dir: Path) -> None:
    with (
        ServerProcess(mesh.environment, shm_dir / "a") as here,
        ServerProcess(mesh.environment, shm_dir / "b") as there,
    ):
        mesh.environment["ECHOMESH_SERVER"] = here.address
        assert says(quick, "bridge", "ls") == f"{here.address} has made no bridges.\n"
        made = says(quick, "bridge", "add", there.address, "--topics", "orders/**", "--topics", "news")
        assert made == f"{here.address} is bridged to {there.address}.\n"
        again = quick("bridge", "add", there.address)
        assert (again.returncode, again.stderr) == (1, f"error: there is a bridge to {there.address} already\n")
        itself = quick("bridge", "add", here.address)
        assert (itself.returncode, itself.stderr) == (1, "error: a server is not bridged to itself\n")
        nobody = quick("bridge", "add", "127.0.0.1:1")
        assert nobody.returncode == 1
        assert nobody.stderr.startswith("error: no bridge to 127.0.0.1:1: ")
        listed = json.loads(says(quick, "bridge", "ls", "--json"))
        urn, port = there.address.split(":")
        bridge = {"urn": urn, "port": int(port), "active": True, "topics": ["orders/**", "news"]}
        assert listed == {"server": here.address, "bridges": [{**bridge, "behind": 0, "reason": ""}]}
        assert f"{there.address}  up     orders/** news" in says(quick, "bridge", "ls")
        assert (
            says(quick, "bridge", "rm", there.address) == f"{here.address} is no longer bridged to {there.address}.\n"
        )
        gone = quick("bridge", "rm", there.address)
        assert (gone.returncode, gone.stderr) == (1, "error: there is no such bridge\n")


def test_a_bridge_with_a_login_of_its_own_takes_the_password_from_a_file_or_a_variable_and_never_shows_it(
    mesh: Mesh, quick: Quick, shm_dir: Path
) -> None:
    access, secret = shm_dir / "access.toml", shm_dir / "secret"
    for path, text in ((access, f'{SERVER}password = "{PasswordHash.of("tulip").text}"\n'), (secret, "tulip\n")):
        path.touch(0o600)
        path.write_text(text)
    with (
        ServerProcess(mesh.environment, shm_dir / "a") as here,
        ServerProcess(mesh.environment, shm_dir / "b", "--access", str(access)) as there,
    ):
        mesh.environment["ECHOMESH_SERVER"] = here.address
        assert "NOT_AUTHORIZED" in quick("bridge", "add", there.address, "--as", "mesh-1").stderr
        alone = quick("bridge", "add", there.address, "--as-password-file", str(secret))
        assert (alone.returncode, alone.stderr.count("needs --as")) == (2, 1)
        says(quick, "bridge", "add", there.address, "--as", "mesh-1", "--as-password-file", str(secret))
        says(quick, "bridge", "rm", there.address)
        mesh.environment["ECHOMESH_BRIDGE_PASSWORD"] = "tulip"
        says(quick, "bridge", "add", there.address, "--as", "mesh-1")
        assert "tulip" not in says(quick, "bridge", "ls", "--json") + here.log + there.log


@pytest.mark.fault
def test_each_event_is_once_at_each_server_whatever_is_killed(mesh: Mesh, quick: Quick, shm_dir: Path) -> None:
    numbers = 1500

    async def publish(server: ServerProcess, name: str) -> None:
        async with session(server.address, client_id=name) as publisher:
            for number in range(numbers):
                made = Event(type="order", source=f"/{name}", id=str(number), data={"number": number})
                await publisher.publish("orders", made)

    async def subscribe(server: ServerProcess, found: list[tuple[str, str]]) -> None:
        async with session(server.address, client_id="reader") as reader:
            async for event in reader.subscribe("orders", start="earliest"):
                found.append((event.source, event.id))
                if len(found) == 2 * numbers:
                    return

    async def kills(servers: list[ServerProcess], found: list[tuple[str, str]]) -> None:
        for reached, server in ((300, servers[1]), (900, servers[0]), (1800, servers[1])):
            while True:
                await asyncio.sleep(0.001)
                if len(found) > reached:
                    break
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.again)

    async def run(servers: list[ServerProcess], found: list[list[tuple[str, str]]]) -> None:
        names = ("here", "there")
        await asyncio.gather(
            kills(servers, found[0]),
            *(publish(server, name) for server, name in zip(servers, names, strict=True)),
            *(subscribe(server, each) for server, each in zip(servers, found, strict=True)),
        )

    with (
        ServerProcess(mesh.environment, shm_dir / "a") as here,
        ServerProcess(mesh.environment, shm_dir / "b") as there,
    ):
        says(quick, "bridge", "add", there.address, "--server", here.address)
        found: list[list[tuple[str, str]]] = [[], []]
        asyncio.run(run([here, there], found))
        tops = [json.loads(says(quick, "topics", "--json", "--server", each.address)) for each in (here, there)]
        assert [top["topics"][0]["next"] for top in tops] == [2 * numbers] * 2
    for each in found:
        assert len(set(each)) == len(each) == 2 * numbers
        for source in ("/here", "/there"):
            assert [int(id) for name, id in each if name == source] == list(range(numbers))
