"""What a session may not, can't be, or does not reach."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import echomesh
from echomesh import errors
from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Server
from echomesh.mesh.client import session
from echomesh.mesh.client_options import Backoff, parse_address, tls_context
from echomesh.mesh.passwords import PasswordHash
from tests.mesh.client_support import connect, ids, some
from tests.mesh.support import Running, an_event


def access() -> Access:
    entry = """
        [clients.{name}]
        password = "{password}"
        environments = ["TST"]
        publish = ["orders/**"]
        subscribe = ["orders/**"]
        {more}
    """
    password = PasswordHash.of("right").text
    clients = [("shop", ""), ("slow", "publishes_per_second = 2")]
    return Access.parse("\n".join(entry.format(name=name, password=password, more=more) for name, more in clients))


def test_what_an_access_file_forbids_is_an_error_of_its_own(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, password="right") as shop:
            assert await shop.publish("orders/a", an_event(0)) == 0
            with pytest.raises(errors.UnauthorizedPublish):
                await shop.publish("secrets", an_event(0))
            with pytest.raises(errors.UnauthorizedSubscribe):
                await shop.subscribe("**")
            with pytest.raises(errors.UnauthorizedSubscribe):
                await anext(shop.subscribe("secrets"))
            with pytest.raises(errors.NotAuthorized):
                await shop.add_bridge("127.0.0.1:9")
            assert await shop.publish("orders/a", an_event(1)) == 1
        for options in ({"password": "wrong"}, {"password": None}, {"password": "right", "environment": "PRD"}):
            async with connect(server, **options) as shop:
                with pytest.raises(errors.NotAuthorized):
                    await shop.publish("orders/a", an_event(2))
                with pytest.raises(errors.NotAuthorized):
                    await anext(shop.subscribe("orders/a"))

    run(test, access=access())


def test_too_many_publishes_a_second_are_refused_with_the_limit(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        async with connect(server, "slow", password="right") as shop:
            with pytest.raises(errors.RateLimited, match="2 publishes a second"):
                await shop.publish_many("orders/a", [an_event(at) for at in range(50)])

    run(test, access=access())


def test_a_password_is_in_no_text() -> None:
    made = session("here", client_id="shop", password="hunter2-")
    assert "hunter2-" not in repr(made.options)
    assert "hunter2-" not in repr(vars(made))


# Addresses, TLS, patience


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("mesh.example", Server("mesh.example", 4889)),
        ("mesh.example:5", Server("mesh.example", 5)),
        ("10.0.0.1:65535", Server("10.0.0.1", 65535)),
        ("[::1]:7", Server("::1", 7)),
        ("[::1]", Server("::1", 4889)),
        ("::1", Server("::1", 4889)),
    ],
)
def test_addresses_are_read(text: str, server: Server) -> None:
    assert parse_address(text) == server


@pytest.mark.parametrize("text", ["", ":5", "host:", "host:x", "host:0", "host:65536", "[::1", "[::1]7", "host:١"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is no address"):
        session(text, client_id="shop")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"client_id": ""}, "client_id"),
        ({"client_id": "x" * 256}, "client_id"),
        ({"client_id": "\udc80"}, "client_id"),
        ({"client_id": 7}, "client_id"),
        ({"client_id": "shop", "password": "\udc80"}, "password"),
        ({"client_id": "shop", "environment": "DEV"}, "environment"),
    ],
)
def test_what_a_session_can_not_be_is_told_before_it_connects(options: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.UsageError, match=what):
        session("here", **options)


def test_nobody_there_is_told_soon() -> None:
    async def test() -> None:
        async with session("127.0.0.1:1", client_id="shop", connect_timeout=0.05) as shop:
            with pytest.raises(errors.ConnectionLost, match=r"127\.0\.0\.1:1 within 0\.05 s"):
                await shop.publish("a", an_event(0))
            with pytest.raises(ConnectionError):
                await anext(shop.subscribe("a"))
            with pytest.raises(errors.ConnectionLost):
                await shop.topics()

    asyncio.run(test())


def test_one_who_never_answers_is_left() -> None:
    async def test() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with session(f"127.0.0.1:{port}", client_id="shop", connect_timeout=0.05) as shop:
            with pytest.raises(errors.ConnectionLost, match="does not answer"):
                await shop.publish("a", an_event(0))
        server.close()
        await server.wait_closed()

    asyncio.run(test())


def test_pauses_between_attempts_grow_with_jitter_to_a_bound() -> None:
    backoff = Backoff(0.1, 2.0)
    pauses = [backoff.pause() for _ in range(20)]
    for at, pause in enumerate(pauses):
        whole = min(0.1 * 2**at, 2.0)
        assert whole / 2 <= pause <= whole
    assert len(set(pauses)) == 20
    backoff.reset()
    assert backoff.pause() <= 0.1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    made, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


def test_tls_is_used_and_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    run: Callable[..., None], certificate: tuple[Path, Path]
) -> None:
    made, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)

    async def test(server: Running) -> None:
        ((_, port),) = await server.server.listen("127.0.0.1", 0, context)
        async with session(f"localhost:{port}", client_id="shop", tls=made) as shop:
            subscription = await shop.subscribe("a")
            await shop.publish_many("a", [an_event(at, 10_000) for at in range(100)])
            assert ids(await some(subscription, 100))[-1] == "e99"
        async with session(f"localhost:{port}", client_id="shop", tls=True) as shop:
            with pytest.raises(errors.ConnectionLost, match="not trusted"):
                await shop.publish("a", an_event(0))

    run(test)


def test_a_tls_file_that_is_not_there_is_told() -> None:
    with pytest.raises(errors.UsageError, match="PEM"):
        tls_context("/nowhere/at/all.pem")
    assert tls_context(None) is tls_context(False) is None


def test_the_face_has_the_session_and_imports_it_late() -> None:
    code = (
        "import sys, echomesh; assert 'asyncio' not in sys.modules; assert 'session' in dir(echomesh);"
        "echomesh.session; echomesh.Session; echomesh.Received; echomesh.sync.session"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    with pytest.raises(AttributeError):
        echomesh.nothing  # noqa: B018
