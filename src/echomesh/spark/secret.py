"""What tasks carry and nobody may read in a plan, a log or an error."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import Final

from echomesh.errors import BadOption

_LONGEST: Final = 1024


class Secret:
    """A text that shows itself only to those who ask for it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __getstate__(self) -> dict[str, str]:  # which can be unpickled inside the JVM too
        return {"text": self._text}

    def __setstate__(self, state: dict[str, str]) -> None:
        self._text = state["text"]


def read_password(path: str) -> str:
    """The first line of `passwordFile`. The driver alone calls this."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline(_LONGEST + 2).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise BadOption("passwordFile", f"= {path!r} can't be read by the driver: {error.strerror or error}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        warnings.warn(f"everybody may read {path}: chmod o-r {path}", stacklevel=2)
    try:
        password = line.decode()
    except UnicodeDecodeError:
        password = ""
    if not 0 < len(line) <= _LONGEST or not password:
        raise BadOption("passwordFile", f"= {path!r} has no password in its first line")
    return password
