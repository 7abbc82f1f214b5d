"""Changes of an access file that leave its comments and its order as they are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echomesh.errors import BadAccessFile, StorageError, UsageError
from echomesh.mesh.access import Access
from echomesh.mesh.access_file import read_access_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_HEADER = "# Who may what. A running server reads it again within a second; see also: echomesh clients --help\n"


def read(path: Path) -> Access:
    """The clients of the file."""
    return Access.parse(read_access_file(path), str(path))


def add(path: Path, client_id: str, entry: dict[str, Any]) -> None:
    """Adds a client, and makes the file if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _edited(path, client_id, new=True) as (document, access):
        refuse_known(access, client_id, path)
        document.setdefault("clients", {})[client_id] = entry


def remove(path: Path, client_id: str) -> None:
    """Removes a client."""
    with _edited(path, client_id) as (document, access):
        refuse_unknown(access, client_id, path)
        del document["clients"][client_id]


def set_password(path: Path, client_id: str, password: str) -> None:
    """Replaces a client's password hash."""
    with _edited(path, client_id) as (document, access):
        refuse_unknown(access, client_id, path)
        document["clients"][client_id]["password"] = password


def refuse_known(access: Access, client_id: str, path: Path) -> None:
    """`UsageError` if the client is there already."""
    if access.get(client_id) is not None:
        raise UsageError(f"{client_id} is in {path} already: change its entry there, or remove it first")


def refuse_unknown(access: Access, client_id: str, path: Path) -> None:
    """`UsageError` if there is no such client."""
    if access.get(client_id) is None:
        known = ", ".join(sorted(client.client_id for client in access)[:5])
        raise UsageError(
            f"{client_id} is not in {path}; there is {known or 'nobody'}{' ...' if len(access) > 5 else ''}"
        )


@contextlib.contextmanager
def _edited(path: Path, client_id: str, *, new: bool = False) -> Iterator[tuple[TOMLDocument, Access]]:
    """The file's document, which is written when this ends; only the entry of `client_id` may differ then."""
    try:
        import tomlkit
    except ImportError as error:
        raise UsageError('access files are edited by TOML Kit: pip install "echomesh[node]"') from error
    path = path.resolve()
    with _alone(path.parent):
        text = _HEADER if new and not path.exists() else read_access_file(path)
        before = Access.parse(text, str(path))
        document = tomlkit.parse(text)
        try:
            yield document, before
            edited = tomlkit.dumps(document)
            changed = Access.parse(edited, str(path)).changed_since(before)
        except UsageError:
            raise
        except (BadAccessFile, ValueError, KeyError, TypeError):
            edited, changed = text, frozenset()
        if changed != {client_id}:
            raise BadAccessFile(str(path), "it is written in a way that only a person can edit: open it in an editor")
        _replace(path, edited)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    # The lock is on the directory, as the file itself is replaced.
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            _keep_owner(path, handle)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _keep_owner(path: Path, handle: int) -> None:
    """A server of another user or group that could read the file still can; everybody else can't."""
    there = path.exists()
    if not there and os.geteuid() != 0:
        return
    # What root makes in a server's directory is for the server.
    like, made = (path if there else path.parent).stat(), os.fstat(handle)
    try:
        if (like.st_uid, like.st_gid) != (made.st_uid, made.st_gid):
            os.fchown(handle, like.st_uid, like.st_gid)
    except PermissionError:
        raise StorageError(f"{path} belongs to another user or group: edit it as its owner") from None
    os.fchmod(handle, 0o600 | (like.st_mode & 0o040 if there else 0))
