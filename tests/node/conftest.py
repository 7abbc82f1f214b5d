"""Nodes in this process, on ports that nobody else has."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from echomesh.mesh.passwords import PasswordHash
from echomesh.node.address import Address
from echomesh.node.config import Config
from tests.support.certificates import Authority

ANY_PORT = Address("127.0.0.1", 0)
PASSWORD = "tulip and rose"

Configure = Callable[..., Config]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that are coroutines run on an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def configure(shm_dir: Path) -> Configure:
    """A configuration for a node in memory."""

    def made(name: str = "data", **changes: object) -> Config:
        return replace(Config(data=shm_dir / name, listen=ANY_PORT), **changes)  # type: ignore[arg-type]

    return made


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def stored() -> str:
    return PasswordHash.of(PASSWORD).text


@pytest.fixture
def access(shm_dir: Path, stored: str) -> Path:
    """An access file with `shop`, who may publish and subscribe to orders, `mesh`, a server, and `boss`, an admin."""
    path = shm_dir / "who.toml"
    path.write_text(
        f"""
[clients.shop]
password = "{stored}"
environments = ["TST"]
publish = ["orders/**"]
subscribe = ["orders/**"]

[clients.mesh]
password = "{stored}"
environments = ["TST", "VAL", "PRD"]
publish = ["**"]
subscribe = ["**"]
server = true

[clients.boss]
password = "{stored}"
environments = ["TST"]
admin = true
"""
    )
    path.chmod(0o600)
    return path
