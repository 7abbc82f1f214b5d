"""A node: what it opens, refuses, looks after, and leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from echomesh import Event
from echomesh.errors import (
    BadAccessFile,
    BadConfig,
    BusyError,
    ConnectionLost,
    LogLocked,
    NotAuthorized,
    StorageError,
    UnauthorizedPublish,
)
from echomesh.log import LogReader
from echomesh.mesh.client import Session, session
from echomesh.mesh.server import MeshServer
from echomesh.node.address import Address
from echomesh.node.config import Config, HttpConfig, TlsConfig
from echomesh.node.node import Node
from echomesh.node.watch import Watch
from tests.node.conftest import ANY_PORT, PASSWORD, Configure
from tests.support.certificates import Authority


def client(node: Node, client_id: str = "test", password: str | None = None, **options: object) -> Session:
    return session(str(node.addresses[0]), client_id=client_id, password=password, **options)  # type: ignore[arg-type]


def event(number: int) -> Event:
    return Event(type="order", source="/test", id=str(number), data={"number": number})


async def publish_on(mesh: Session, topic: str, offsets: list[int] | None = None) -> None:
    """Publishes, one after the other, until that is no longer possible."""
    for number in range(1_000_000):
        offset = await mesh.publish(topic, event(number))
        if offsets is not None:
            offsets.append(offset)


async def until(reached: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(0.001)
        if reached():
            return


async def test_it_serves_until_it_is_closed_and_goes_on_afterwards(configure: Configure) -> None:
    config = configure()
    async with Node(config) as node, client(node) as mesh:
        assert await mesh.publish("orders", event(0)) == 0
    config = replace(config, listen=node.addresses[0])
    async with Node(config) as node, client(node) as mesh:
        assert await mesh.publish("orders", event(1)) == 1
        subscription = await mesh.subscribe("orders", start="earliest")
        assert [(await anext(subscription)).offset for _ in range(2)] == [0, 1]


async def test_a_subscriber_goes_on_after_a_restart(configure: Configure) -> None:
    config = configure()
    async with Node(config) as node, client(node) as mesh:
        await mesh.publish_many("orders", map(event, range(10)))
        subscription = await mesh.subscribe("orders", start="earliest", ack="manual")
        for _ in range(4):
            await (await anext(subscription)).ack()
        await subscription.close()
    async with Node(config) as node, client(node) as mesh:
        assert (await anext(await mesh.subscribe("orders"))).offset == 4


async def test_what_was_acknowledged_before_the_end_is_in_the_log(configure: Configure) -> None:
    config, acknowledged = configure(), list[int]()

    node = Node(config)
    await node.start()
    mesh = client(node, max_outage=0.0)
    tasks = [asyncio.create_task(publish_on(mesh, "orders", acknowledged)) for _ in range(20)]
    await until(lambda: len(acknowledged) > 100)
    await node.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await mesh.close()
    assert {type(result) for result in results} == {ConnectionLost}
    with LogReader(config.directory) as log:
        assert log.topic("orders").end >= max(acknowledged) + 1


async def test_a_port_that_was_just_used_can_be_used_again(configure: Configure) -> None:
    config = configure()
    for number in range(3):
        async with Node(config) as node:
            # The server closes first: its end of the connection lingers in the kernel.
            mesh = client(node, max_outage=0.0)
            assert await mesh.publish("orders", event(number)) == number
        await mesh.close()
        config = replace(config, listen=node.addresses[0])


async def test_everything_is_let_go_of_when_it_is_closed(configure: Configure) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        async with Node(configure()) as node, client(node) as mesh:
            await mesh.publish("orders", event(0))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.0.2.1"])
async def test_without_an_access_file_only_loopback_is_served(configure: Configure, host: str) -> None:
    config = configure(listen=Address(host, 0))
    with pytest.raises(BadConfig, match="without an access file a server serves this machine alone") as caught:
        await Node(config).start()
    assert caught.value.key == "listen"
    assert not config.directory.exists()
    with pytest.raises(BadConfig) as caught:
        await Node(configure(http=HttpConfig(Address(host, 0)))).start()
    assert caught.value.key == "http.listen"


async def test_without_an_access_file_it_says_so(configure: Configure, caplog: pytest.LogCaptureFixture) -> None:
    async with Node(configure()):
        pass
    assert "no access file: only this machine can connect" in caplog.text


async def test_with_an_access_file_it_serves_others_who_are_in_it(configure: Configure, access: Path) -> None:
    async with Node(configure(listen=Address("0.0.0.0", 0), access=access)) as node:
        node.addresses = [Address("127.0.0.1", node.addresses[0].port)]
        async with client(node, "shop", PASSWORD) as shop:
            assert await shop.publish("orders/1", event(0)) == 0
            with pytest.raises(UnauthorizedPublish):
                await shop.publish("secrets", event(1))
        for name, password in (("shop", "wrong"), ("shop", None), ("nobody", PASSWORD)):
            async with client(node, name, password) as refused:
                with pytest.raises(NotAuthorized):
                    await refused.publish("orders/1", event(2))


async def test_the_access_file_of_the_data_directory_is_found(configure: Configure, access: Path) -> None:
    config = configure()
    config.directory.mkdir()
    access.rename(config.directory / "access.toml")
    async with Node(config) as node, client(node) as stranger:
        with pytest.raises(NotAuthorized):
            await stranger.publish("orders/1", event(0))


async def test_a_changed_access_file_is_in_force_soon(configure: Configure, access: Path, stored: str) -> None:
    async with Node(configure(access=access)) as node, client(node, "shop", PASSWORD) as shop:
        await shop.publish("orders/1", event(0))
        access.write_text(access.read_text().replace('publish = ["orders/**"]', 'publish = ["news"]'))
        with pytest.raises(UnauthorizedPublish):
            await publish_on(shop, "orders/1")
        assert await shop.publish("news", event(0)) == 0
        access.write_text(access.read_text().replace("[clients.shop]", "[clients.shut]"))
        with pytest.raises(NotAuthorized):
            await publish_on(shop, "news")


async def test_a_broken_access_file_keeps_it_from_starting_but_not_from_going_on(
    configure: Configure, access: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(access=access)
    async with Node(config) as node, client(node, "shop", PASSWORD) as shop:
        access.write_text("[clients.shop")
        number = 0
        while "what was in force stays in force" not in caplog.text:
            await shop.publish("orders/1", event(number))
            number += 1
    with pytest.raises(BadAccessFile, match="not TOML"):
        await Node(config).start()


async def test_a_data_directory_has_one_node(configure: Configure) -> None:
    config = configure()
    async with Node(config):
        with pytest.raises(LogLocked, match=f"process {os.getpid()}"):
            await Node(config).start()
    async with Node(config):
        pass


async def test_a_port_has_one_node(configure: Configure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        with pytest.raises(BusyError, match=f"{address} is taken"):
            await Node(configure(listen=address)).start()
    async with Node(configure(listen=address)):
        pass


async def test_an_address_of_another_machine_is_said_to_be_none_of_ours(configure: Configure, access: Path) -> None:
    with pytest.raises(BadConfig, match=r"listen = 192\.0\.2\.1:0: it can't be listened on"):
        await Node(configure(listen=Address("192.0.2.1", 0), access=access)).start()


async def test_a_directory_that_can_t_be_made_is_named(configure: Configure, shm_dir: Path) -> None:
    (shm_dir / "file").touch()
    with pytest.raises(StorageError, match=r"file/data can't be the data directory: Not a directory"):
        await Node(configure("file/data")).start()


async def test_a_disk_that_refuses_is_told_once(configure: Configure, caplog: pytest.LogCaptureFixture) -> None:
    async with Node(configure()) as node:
        watch = Watch(node.server, node.log, node.state, None)
        for error in (None, None, StorageError("the disk is gone"), None):
            node.state.error = error
            await watch.look()
            await watch.look()
        assert [record.message for record in caplog.records if record.name == "echomesh.node.watch"] == [
            "state: the disk is gone"
        ]


@pytest.mark.parametrize("secure", [False, True])
async def test_http_is_served_beside_the_mesh(configure: Configure, authority: Authority, secure: bool) -> None:
    pytest.importorskip("starlette")
    certificate = authority.issue("http", "127.0.0.1")
    tls = TlsConfig(certificate.pem, certificate.key) if secure else TlsConfig()
    context = ssl.create_default_context(cafile=authority.pem) if secure else None

    def post() -> bytes:
        url = f"http{'s' * secure}://{node.http_addresses[0]}/topics/orders"
        head = {"Content-Type": "application/cloudevents+json"}
        with urlopen(Request(url, event(7).to_json(), head), context=context) as answer:
            body: bytes = answer.read()
            return body

    async with Node(configure(tls=tls, http=HttpConfig(ANY_PORT))) as node:
        assert json.loads(await asyncio.to_thread(post))["offset"] == 0
        async with client(node, tls=authority.pem if secure else None) as mesh:
            assert (await anext(await mesh.subscribe("orders", start="earliest"))).data == {"number": 7}
        with pytest.raises(BusyError, match="is taken"):
            await Node(configure("other", http=HttpConfig(node.http_addresses[0]))).start()


async def test_a_bridge_is_told_in_the_log_when_it_comes_and_goes(
    configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Node(configure("a")) as here, client(here) as mesh:
        async with Node(configure("b")) as there:
            await mesh.add_bridge(str(there.addresses[0]))
            await until(lambda: f"bridge to={there.addresses[0]} state=up" in caplog.text)
        await until(lambda: f"bridge to={there.addresses[0]} state=down" in caplog.text)


async def test_a_bridge_waits_until_a_server_on_any_free_port_knows_where_it_is_reached(configure: Configure) -> None:
    async with Node(configure("b")) as there:
        async with Node(configure("a")) as here, client(here) as mesh:
            await mesh.add_bridge(str(there.addresses[0]))
        here = Node(configure("a"))
        listen = MeshServer.listen
        dialed: list[bool] = []

        async def slow(server: MeshServer, *args: Any) -> Any:
            for _ in range(100):  # turns of the event loop, in which a bridge could dial
                await asyncio.sleep(0)
            server.core.tick(asyncio.get_running_loop().time())
            dialed.extend(
                bool(bridge.dialing or bridge.dialed or bridge.why) for bridge in server.core.bridges.bridges.values()
            )
            return await listen(server, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MeshServer, "listen", slow)
            await here.start()
        assert dialed == [False], "there is a bridge, and it waits"
        links = there.server.core.bridges.links
        await until(lambda: [link.peer.port for link in links] == [here.addresses[0].port])
        await here.close()


async def test_nothing_secret_is_logged(
    configure: Configure, access: Path, stored: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ECHOMESH_BRIDGE_PASSWORD", PASSWORD)
    async with Node(configure("a", access=access)) as here, Node(configure("b", access=access)) as there:
        async with client(here, "boss", PASSWORD) as boss:
            with pytest.raises(Exception, match="NOT_AUTHORIZED"):
                await boss.add_bridge(str(there.addresses[0]))
        async with client(here, "shop", PASSWORD + "?") as shop:
            with pytest.raises(NotAuthorized):
                await shop.publish("orders/1", event(0))
    assert PASSWORD not in caplog.text
    assert stored not in caplog.text


async def test_the_node_of_a_default_configuration_listens_where_the_protocol_says() -> None:
    assert Config().listen == Address("127.0.0.1", 4889)
