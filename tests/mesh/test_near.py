"""Connections within a machine send without pauses, whatever the system spreads over time."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echomesh.mesh.near import send_at_once
from tests.data.hosts import hosts
from tests.mesh.support import Running

PACED = "bbr"
TRY = """
import socket, sys
from echomesh.mesh.near import send_at_once
sending = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
send_at_once(sending)
print(sending.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""


def control(connection: socket.socket) -> str:
    """How what it sends is held back."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


@pytest.fixture
def paced() -> Iterator[socket.socket]:
    """A socket that listens, and whose connections are paced."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        try:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PACED.encode())
        except OSError as error:
            pytest.skip(f"this system has no {PACED}: {error}")
        yield listening


def test_both_ends_of_a_connection_within_the_machine_send_at_once(paced: socket.socket) -> None:
    for source in ("127.0.0.1", "127.0.0.9"):
        with socket.create_connection(paced.getsockname(), source_address=(source, 0)) as one, paced.accept()[0] as two:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PACED.encode())
            assert (control(one), control(two)) == (PACED, PACED)
            send_at_once(one)
            send_at_once(two)
            assert (control(one), control(two)) == ("reno", "reno")


def test_what_is_not_paced_stays_as_it_is(paced: socket.socket) -> None:
    paced.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    with socket.create_connection(paced.getsockname()) as one, paced.accept()[0] as two:
        before = control(one)
        if before != PACED:
            send_at_once(one)
            assert control(one) == before
        send_at_once(two)
        assert control(two) == "reno"


def test_what_is_no_connection_is_let_alone() -> None:
    send_at_once(None)
    with socket.socket() as unconnected:
        send_at_once(unconnected)
    one, two = socket.socketpair()
    send_at_once(one)
    one.close()
    send_at_once(one)
    two.close()


def test_the_server_does_so(run: Callable[..., None], paced: socket.socket) -> None:
    async def test(server: Running) -> None:
        for listening in server.server._servers:
            for each in listening.sockets:
                with socket.socket(fileno=socket.dup(each.fileno())) as shared:
                    shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, PACED.encode())
        await server.client()
        (pipe,) = server.server._pipes()
        with socket.socket(fileno=socket.dup(pipe.wire.transport.get_extra_info("socket").fileno())) as accepted:
            assert control(accepted) == "reno"

    run(test)


@pytest.mark.network
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="namespaces need root and iproute2")
@pytest.mark.parametrize(("to", "then"), [("10.77.0.1", "reno"), ("10.77.0.2", PACED)])
def test_connections_between_machines_are_paced_as_the_system_wants(
    tmp_path: Path, paced: socket.socket, to: str, then: str
) -> None:
    with hosts(2, tmp_path) as machines:
        serve = f"import socket; s = socket.create_server(('{to}', 7999)); print(1, flush=True); s.accept(); input()"
        listening, connecting = machines[to == "10.77.0.2"], machines[0]
        inside = ["ip", "netns", "exec", listening.namespace, sys.executable, "-c", serve]
        with subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"1\n"
            command = ["ip", "netns", "exec", connecting.namespace, sys.executable, "-c", TRY, to, "7999"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            server.communicate(b"\n")
    assert done.stdout.strip() == then
