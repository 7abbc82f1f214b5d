"""Proof that a process shares this machine's memory: a token in a file, found by who looks for it itself.

Addresses prove nothing, since containers have the same ones. Only who finds the token beside the nukleus that the
process named, in its own directory, sees the same files.
"""

from __future__ import annotations

import hmac
import os
import secrets
from typing import Final

from echomesh.errors import BadName
from echomesh.nukleus.directory import Directory, Place

_FILE: Final = "proof"
_BYTES: Final = 16
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def leave_proof(place: Place) -> bytes:
    """Writes a new token beside the control file of a nukleus of this process."""
    proof = secrets.token_bytes(_BYTES)
    descriptor = os.open(
        place.path / _FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        os.write(descriptor, proof)
    finally:
        os.close(descriptor)
    return proof


def has_proof(place: Place) -> bool:
    """Whether a nukleus is one of the data plane's: others are none of the participant's business."""
    return (place.path / _FILE).is_file()


def proven(directory: Directory, nukleus: str, proof: bytes) -> bool:
    """Whether the token is found in the directory of that nukleus, of a live process of this user."""
    try:
        place = directory.place(nukleus)
        descriptor = os.open(place.path / _FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (BadName, OSError):
        return False
    try:
        mine = os.fstat(descriptor).st_uid == os.geteuid()
        found = os.read(descriptor, _BYTES + 1)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return mine and len(found) == _BYTES and hmac.compare_digest(found, proof) and place.owner_pid() is not None
