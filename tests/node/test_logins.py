"""Bridges with a login each: by the configuration, and by what was said when they were made."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from echomesh.errors import BadConfig, InvalidBridge
from echomesh.mesh.bodies import Server
from echomesh.mesh.client import session
from echomesh.mesh.passwords import PasswordHash
from echomesh.node.config import BridgesConfig
from echomesh.node.keys import BridgeLogin
from echomesh.node.logins import LOGINS_FILE, KeptLogins
from echomesh.node.node import Node
from tests.node.conftest import Configure
from tests.node.test_node import until

SECRETS = {"b": "tulip of b", "c": "rose of c"}


def an_access_file(directory: Path, name: str) -> Path:
    """Lets one client in, as a server."""
    path = directory / f"{name}.toml"
    path.touch(0o600)
    hashed = PasswordHash.of(SECRETS[name]).text
    path.write_text(
        f'[clients.to-{name}]\npassword = "{hashed}"\nenvironments = ["TST"]\npublish = ["**"]\nsubscribe = ["**"]\n'
        "server = true\n"
    )
    return path


async def test_each_bridge_logs_in_as_itself_again_after_a_restart_and_nobody_else_can_read_how(
    configure: Configure, shm_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    password_file = shm_dir / "secret-b"
    password_file.touch(0o600)
    password_file.write_text(SECRETS["b"])
    async with (
        Node(configure("b", access=an_access_file(shm_dir, "b"))) as b,
        Node(configure("c", access=an_access_file(shm_dir, "c"))) as c,
    ):
        to_b, to_c = str(b.addresses[0]), str(c.addresses[0])
        config = configure("a", bridges=BridgesConfig(logins=(BridgeLogin(b.addresses[0], "to-b", password_file),)))
        kept = config.directory / LOGINS_FILE
        async with Node(config) as a, session(str(a.addresses[0]), client_id="boss") as boss:
            await boss.add_bridge(to_b)
            for login, password in ((None, None), ("to-c", "wrong"), ("to-b", SECRETS["b"])):
                with pytest.raises(InvalidBridge, match="NOT_AUTHORIZED"):
                    await boss.add_bridge(to_c, login=login, password=password)
            assert not kept.exists(), "what did not work is not kept"
            await boss.add_bridge(to_c, login="to-c", password=SECRETS["c"])
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            assert [each.active for each in await boss.bridges()] == [True, True]
        async with Node(config) as a, session(str(a.addresses[0]), client_id="boss") as boss:
            bridges = a.server.core.bridges.bridges
            await until(lambda: len(bridges) == 2 and all(bridge.active for bridge in bridges.values()))
            for path in config.directory.rglob("*"):
                if path.is_file() and path != kept:
                    assert SECRETS["c"].encode() not in path.read_bytes(), path
            await boss.remove_bridge(to_c)
        assert SECRETS["c"] not in kept.read_text()
    assert not any(secret in caplog.text for secret in SECRETS.values())


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / LOGINS_FILE
    KeptLogins(path).keep(Server("far", 1), ("me", "secret"))
    path.chmod(0o644)
    assert KeptLogins(path).get(Server("far", 1)) == ("me", "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "others could read" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"far:1": "secret"}', b"\xff"])
def test_a_damaged_file_is_named_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / LOGINS_FILE
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(BadConfig, match=f"{LOGINS_FILE} is damaged: remove it") as caught:
        KeptLogins(path)
    assert "secret" not in str(caught.value)


async def test_a_password_file_that_is_missing_is_named_before_anything_is_served(
    configure: Configure, shm_dir: Path
) -> None:
    login = BridgeLogin(configure().listen, "me", shm_dir / "nowhere")
    with pytest.raises(BadConfig, match=r"bridges\.logins\..*nowhere: it can't be read"):
        await Node(configure(bridges=BridgesConfig(logins=(login,)))).start()
