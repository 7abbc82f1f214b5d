"""TLS 1.3 of a server and of its bridges."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from echomesh import Event
from echomesh.errors import BadConfig, ConnectionLost, InvalidBridge
from echomesh.mesh.client import session
from echomesh.node.config import BridgesConfig, TlsConfig
from echomesh.node.node import Node
from echomesh.node.tls import bridge_context, server_context
from tests.node.conftest import PASSWORD, Configure
from tests.support.certificates import Authority, Certificate

EVENT = Event(type="order", source="/test", id="1", data=b"x")


@pytest.fixture(scope="session")
def server(authority: Authority) -> Certificate:
    return authority.issue("server", "localhost", "127.0.0.1")


async def test_a_client_that_trusts_the_ca_is_served_over_tls_1_3(
    configure: Configure, authority: Authority, server: Certificate
) -> None:
    async with Node(configure(tls=TlsConfig(server.pem, server.key))) as node:
        address = str(node.addresses[0])
        async with session(address, client_id="test", tls=authority.pem) as mesh:
            assert await mesh.publish("orders", EVENT) == 0
        async with session(address, client_id="test", tls=True) as mesh:
            with pytest.raises(ConnectionLost, match="certificate is not trusted"):
                await mesh.publish("orders", EVENT)
        async with session(address, client_id="test", connect_timeout=0.5) as mesh:
            with pytest.raises(ConnectionLost):
                await mesh.publish("orders", EVENT)


@pytest.mark.parametrize(("newest", "welcome"), [("TLSv1_2", False), ("TLSv1_3", True)])
async def test_older_tls_is_refused(
    configure: Configure, authority: Authority, server: Certificate, newest: str, welcome: bool
) -> None:
    context = ssl.create_default_context(cafile=authority.pem)
    context.maximum_version = ssl.TLSVersion[newest]

    def connect() -> str | None:
        with (
            socket.create_connection(node.addresses[0]) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            return secure.version()

    async with Node(configure(tls=TlsConfig(server.pem, server.key))) as node:
        if welcome:
            assert await asyncio.to_thread(connect) == "TLSv1.3"
        else:
            with pytest.raises(ssl.SSLError):
                await asyncio.to_thread(connect)


async def test_with_a_ca_for_clients_they_must_show_a_certificate(
    configure: Configure, authority: Authority, server: Certificate
) -> None:
    mine = authority.issue("client")
    tls = TlsConfig(server.pem, server.key, client_ca=authority.pem)
    async with Node(configure(tls=tls)) as node:
        address = str(node.addresses[0])
        context = ssl.create_default_context(cafile=authority.pem)
        async with session(address, client_id="test", tls=context, connect_timeout=0.5) as mesh:
            with pytest.raises(ConnectionLost):
                await mesh.publish("orders", EVENT)
        context.load_cert_chain(mine.pem, mine.key)
        async with session(address, client_id="test", tls=context) as mesh:
            assert await mesh.publish("orders", EVENT) == 0


async def test_bridges_speak_tls_and_log_in(
    configure: Configure, authority: Authority, server: Certificate, access: Path, shm_dir: Path
) -> None:
    secret = shm_dir / "secret"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    tls = TlsConfig(server.pem, server.key, client_ca=authority.pem)
    bridges = BridgesConfig(client="mesh", password_file=secret, tls=True, ca=authority.pem)
    mine = ssl.create_default_context(cafile=authority.pem)
    mine.load_cert_chain(server.pem, server.key)
    config = configure("a", tls=tls, bridges=bridges, access=access)
    async with Node(config) as here, Node(configure("b", tls=tls, access=access)) as there:
        async with session(str(here.addresses[0]), client_id="boss", password=PASSWORD, tls=mine) as boss:
            await boss.add_bridge(str(there.addresses[0]))
        async with session(str(there.addresses[0]), client_id="shop", password=PASSWORD, tls=mine) as shop:
            subscription = await shop.subscribe("orders/**")
            async with session(str(here.addresses[0]), client_id="shop", password=PASSWORD, tls=mine) as other:
                await other.publish("orders/1", EVENT)
            assert (await anext(subscription)).id == EVENT.id


async def test_a_bridge_to_a_server_with_a_stranger_s_certificate_is_none(
    configure: Configure, authority: Authority, server: Certificate, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger").issue("server", "localhost", "127.0.0.1")
    tls = TlsConfig(server.pem, server.key)
    bridges = BridgesConfig(tls=True, ca=authority.pem)
    config = configure("a", tls=tls, bridges=bridges)
    other = configure("b", tls=TlsConfig(stranger.pem, stranger.key))
    async with (
        Node(config) as here,
        Node(other) as there,
        session(str(here.addresses[0]), client_id="boss", tls=authority.pem) as boss,
    ):
        with pytest.raises(InvalidBridge, match="certificate verify failed"):
            await boss.add_bridge(str(there.addresses[0]))


def test_a_certificate_may_have_its_key_in_the_same_file(server: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(server.pem.read_bytes() + server.key.read_bytes())
    assert server_context(TlsConfig(both)) is not None


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_context(TlsConfig()) is None
    assert bridge_context(BridgesConfig(), TlsConfig()) is None


def test_what_is_wrong_with_the_files_is_said(authority: Authority, server: Certificate, tmp_path: Path) -> None:
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.touch()
    other = authority.issue("other", "localhost")
    right = TlsConfig(server.pem, server.key)
    for config, key, said in (
        (replace(right, certificate=None), "tls.key", "set tls.certificate"),
        (TlsConfig(client_ca=authority.pem), "tls.client_ca", "set tls.certificate"),
        (replace(right, certificate=missing), "tls.certificate", "it can't be read: No such file"),
        (replace(right, key=missing), "tls.key", "it can't be read: No such file"),
        (replace(right, key=None), "tls.key", "no certificate and key that belong together"),
        (replace(right, key=other.key), "tls.key", "no certificate and key that belong together"),
        (replace(right, certificate=empty), "tls.key", "no certificate and key"),
        (replace(right, client_ca=empty), "tls.client_ca", "there is no certificate in it"),
        (replace(right, client_ca=missing), "tls.client_ca", "it can't be read"),
    ):
        with pytest.raises(BadConfig) as caught:
            server_context(config)
        assert (caught.value.key, said in str(caught.value)) == (key, True), str(caught.value)
    for bridges, said in (
        (BridgesConfig(ca=authority.pem), "set bridges.tls = true"),
        (BridgesConfig(tls=True, ca=missing), "it can't be read"),
        (BridgesConfig(tls=True, ca=empty), "there is no certificate in it"),
    ):
        with pytest.raises(BadConfig) as caught:
            bridge_context(bridges, TlsConfig())
        assert (caught.value.key, said in str(caught.value)) == ("bridges.ca", True), str(caught.value)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(server: Certificate, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-aes128", "-passout", "pass:tulip", "-in", server.key, "-out", locked],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    with pytest.raises(BadConfig, match="a key with a passphrase can't be used"):
        server_context(TlsConfig(server.pem, locked))
