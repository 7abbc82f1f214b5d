"""Who this server is at others: by the configuration, and by what was said when a bridge was made."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from echomesh.errors import BadConfig
from echomesh.mesh.bodies import Server
from echomesh.mesh.ports import Login
from echomesh.node.address import Address
from echomesh.node.config import PASSWORD_VARIABLE, BridgesConfig
from echomesh.node.secrets import password_from, read_password

LOGINS_FILE: Final = "bridge-logins.json"

_log = logging.getLogger(__name__)


def configured(config: BridgesConfig) -> Callable[[Server], Login]:
    """The logins of the configuration; the passwords are read now."""
    default = (config.client, password_from(config.password_file, PASSWORD_VARIABLE, "bridges.password_file"))
    known: dict[Address, Login] = {}
    for login in config.logins:
        name = f"bridges.logins.{login.server}.password_file"
        password = None if login.password_file is None else read_password(login.password_file, name)
        known[login.server] = (login.client, password)
    return lambda server: known.get(Address(server.urn, server.port), default)


class KeptLogins:
    """Logins in a file of the data directory, which this user alone can read.

    The other server wants the password itself, so it can't be kept as a hash.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Login] = self._read()

    def get(self, server: Server) -> Login | None:
        """The login of the bridge to this server, if it has one of its own."""
        return self._kept.get(_name(server))

    def keep(self, server: Server, login: Login) -> None:
        """The bridge has this login from now on: on disk, or `OSError`."""
        kept = {**self._kept, _name(server): login}
        self._write(kept)
        self._kept = kept

    def forget(self, server: Server) -> None:
        """There is no such bridge any more."""
        if self._kept.pop(_name(server), None) is not None:
            try:
                self._write(self._kept)
            except OSError as error:
                _log.warning("%s still has the login for %s: %s", self._path, _name(server), error)

    def _read(self) -> dict[str, Login]:
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BadConfig(f"{self._path} can't be read: {error.strerror}") from None
        with os.fdopen(handle, "rb") as file:
            if os.fstat(handle).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                _log.warning("%s: others could read the passwords in it; now they can't", self._path)
                os.fchmod(handle, 0o600)
            data = file.read()
        try:
            return msgspec.json.decode(data, type=dict[str, tuple[str, str | None]])
        except (msgspec.MsgspecError, ValueError):
            raise BadConfig(
                f"{self._path} is damaged: remove it, then remove the bridges that have a login and add them again"
            ) from None

    def _write(self, kept: dict[str, Login]) -> None:
        directory = self._path.parent
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=directory)  # for this user alone
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(handle)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(at)
        finally:
            os.close(at)


def _name(server: Server) -> str:
    return str(Address(server.urn, server.port))
