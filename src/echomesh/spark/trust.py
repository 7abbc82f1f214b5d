"""TLS with a server: whom to trust is read by the driver, and tasks carry it, so the file is needed in one place."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from echomesh.errors import BadOption

Trust = str | bool  # certificates as PEM; True: those that the machine trusts; False: no TLS
_WORDS: Final = {"true": True, "false": False}


def read_trust(tls: str | None) -> Trust:
    """What the option `tls` says: `true`, `false`, or the PEM file of the server's authority."""
    if tls is None or tls.lower() in _WORDS:
        return _WORDS[tls.lower()] if tls else False
    try:
        found = Path(tls).read_text(encoding="ascii")
        context(found)
    except (ssl.SSLError, ValueError):
        raise BadOption(
            "tls", f"= {tls[:80]!r} has no certificates: give true, or a file that has them as PEM"
        ) from None
    except OSError as error:
        raise BadOption("tls", f"= {tls[:80]!r} can't be read by the driver: {error.strerror or error}") from None
    return found


def context(trust: Trust) -> ssl.SSLContext | None:
    """For a connection; None when it goes without TLS."""
    if trust is False:
        return None
    made = ssl.create_default_context(cadata=None if trust is True else str(trust))
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made
