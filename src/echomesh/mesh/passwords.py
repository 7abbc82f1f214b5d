"""Passwords: how they are stored, and how one is checked.

Stored is a scrypt hash with a salt of its own, as one line of text:

    scrypt$n=16384,r=8,p=1$<salt, 16 bytes in hex>$<key, 32 bytes in hex>

All hashes have the same cost, 16 MiB and some 40 ms, so the time of a check does not tell whether a client exists.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from typing import Final

from echomesh.errors import UsageError

MAX_PASSWORD_BYTES: Final = 1024

_N, _R, _P = 1 << 14, 8, 1
_SALT_BYTES, _KEY_BYTES = 16, 32
_COST = f"n={_N},r={_R},p={_P}"
_FORM = re.compile(r"scrypt\$(n=\d+,r=\d+,p=\d+)\$([0-9a-f]+)\$([0-9a-f]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is kept of a password: enough to check one, too little to get it back."""

    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str) -> PasswordHash:
        """The hash of a new password, with a new salt; takes some 40 ms. `UsageError` for an empty or endless one."""
        if (data := usable(password)) is None:
            raise UsageError(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes of UTF-8")
        salt = os.urandom(_SALT_BYTES)
        return cls(salt, _derived(data, salt))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """The hash that `text` spells; a `UsageError` says what is wrong with it, and not what it is."""
        if (found := _FORM.fullmatch(text)) is None:
            raise UsageError("it is not a password hash; set the password with: echomesh clients passwd")
        if found[1] != _COST:
            raise UsageError(f"its cost is not {_COST}; set the password anew with: echomesh clients passwd")
        if len(found[2]) != 2 * _SALT_BYTES or len(found[3]) != 2 * _KEY_BYTES:
            raise UsageError("it is not whole; set the password anew with: echomesh clients passwd")
        return cls(bytes.fromhex(found[2]), bytes.fromhex(found[3]))

    @property
    def text(self) -> str:
        """As it stands in the access file."""
        return f"scrypt${_COST}${self.salt.hex()}${self.key.hex()}"

    def matches(self, password: bytes) -> bool:
        """Whether the hash was made of this password; takes some 40 ms, without the interpreter's lock."""
        return hmac.compare_digest(_derived(password, self.salt), self.key)


def usable(password: str | None) -> bytes | None:
    """The password's bytes; None for what can't be one, and need not be checked."""
    if not password or len(password) > MAX_PASSWORD_BYTES:
        return None
    try:
        data = password.encode()
    except UnicodeEncodeError:
        return None
    return data if len(data) <= MAX_PASSWORD_BYTES else None


def _derived(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=_N, r=_R, p=_P, dklen=_KEY_BYTES)


DECOY: Final = PasswordHash(os.urandom(_SALT_BYTES), os.urandom(_KEY_BYTES))
"""Checked in place of a client that does not exist; no password matches."""
