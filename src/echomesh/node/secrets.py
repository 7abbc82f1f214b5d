"""Passwords from where they may stand: a file, or a variable of the environment. Never arguments, never messages."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from echomesh.errors import BadConfig
from echomesh.mesh.passwords import MAX_PASSWORD_BYTES

_log = logging.getLogger(__name__)


def read_password(path: Path, name: str) -> str:
    """The first line of a file; `name` is the option or key that names it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            line = file.readline(MAX_PASSWORD_BYTES + 2)
    except OSError as error:
        raise BadConfig(f"{name} = {path}: it can't be read: {error.strerror or error}", name) from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        _log.warning("%s: everybody on this machine may read this password; change that with: chmod o-r %s", path, path)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if not line or len(line) > MAX_PASSWORD_BYTES:
        raise BadConfig(f"{name} = {path}: its first line is no password: 1 to {MAX_PASSWORD_BYTES} bytes are", name)
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadConfig(f"{name} = {path}: its first line is not UTF-8", name) from None


def password_from(path: Path | None, variable: str, name: str) -> str | None:
    """The password in the file if there is one, else in the variable; None for neither."""
    if path is not None:
        return read_password(path, name)
    return os.environ.get(variable) or None
