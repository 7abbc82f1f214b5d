"""Beacons over real sockets of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from echomesh.data.beacon_socket import BeaconSocket
from echomesh.data.config import DataOptions
from echomesh.data.interfaces import interfaces
from echomesh.errors import PortTaken
from tests.support.ports import free_port


def options(**more: Any) -> DataOptions:
    return DataOptions(**{"group": "", "broadcast": False, "beacon_port": free_port(udp=True), **more})


async def heard(sender: DataOptions, listener: DataOptions) -> tuple[bytes, str]:
    """What the listener hears of the sender."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[tuple[bytes, str]] = loop.create_future()

    def hear(data: bytes, ip: str) -> None:
        if not first.done():
            first.set_result((data, ip))

    listening = BeaconSocket(listener, hear)
    sending = BeaconSocket(sender, lambda data, ip: None)
    try:
        async with asyncio.timeout(20):
            while not first.done():
                listening.send(b"")  # joins the group
                sending.send(b"hello")
                await asyncio.wait([first], timeout=0.05)
        return first.result()
    finally:
        listening.close()
        sending.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_static_peer_hears_it(host: str) -> None:
    listener = options()
    sender = options(peers=("no.such.host.invalid", f"{host}:{listener.beacon_port}"))
    assert asyncio.run(heard(sender, listener)) == (b"hello", "127.0.0.1")


def test_a_flood_is_read_in_turns() -> None:
    chosen = options()
    seen: list[bytes] = []

    async def test() -> None:
        with (
            contextlib.closing(BeaconSocket(chosen, lambda data, ip: seen.append(data))),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood,
        ):
            for _ in range(100):
                flood.sendto(b"x" * 600, ("127.0.0.1", chosen.beacon_port))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 0 < len(seen) < 100  # others had a turn
            async with asyncio.timeout(20):
                while len(seen) < 100:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        assert max(map(len, seen)) < 600  # and no more of each than a beacon can have

    asyncio.run(test())


def test_a_port_that_another_program_keeps_to_itself_is_named() -> None:
    chosen = options()

    async def test() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("", chosen.beacon_port))
            with pytest.raises(PortTaken, match="ECHOMESH_BEACON_PORT"):
                BeaconSocket(chosen, lambda data, ip: None)

    asyncio.run(test())


def test_the_interfaces_of_this_machine_are_seen() -> None:
    found = {interface.name: interface for interface in interfaces()}
    assert found["lo"].ip == "127.0.0.1"
    assert found["lo"].broadcast is None
    assert {interface.index for interface in found.values()} <= {index for index, _ in socket.if_nameindex()}
