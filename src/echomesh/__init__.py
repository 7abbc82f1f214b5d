"""echomesh: the event mesh for Python and Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from echomesh._version import __version__
from echomesh.errors import EchomeshError
from echomesh.events import Event

if TYPE_CHECKING:
    from echomesh import sync
    from echomesh.mesh.client import Received, Session, session

__all__ = ["EchomeshError", "Event", "Received", "Session", "__version__", "session", "sync"]

# Loaded when they are first used, so that `import echomesh` stays quick.
_LAZY: Final = {
    "Received": "echomesh.mesh.client",
    "Session": "echomesh.mesh.client",
    "session": "echomesh.mesh.client",
}


def __getattr__(name: str) -> object:
    if name == "sync":
        return importlib.import_module("echomesh.sync")
    if name not in _LAZY:
        raise AttributeError(f"module 'echomesh' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
