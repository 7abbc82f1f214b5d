"""echomesh: the event mesh for Python and Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from echomesh._version import __version__
from echomesh.errors import EchomeshError
from echomesh.events import Event

if TYPE_CHECKING:
    from echomesh import sync
    from echomesh.data.incoming import Gap
    from echomesh.data.mesh import Mesh, connect
    from echomesh.data.publisher import Publisher
    from echomesh.data.subscriber import Subscriber
    from echomesh.mesh.client import Received, Session, session
    from echomesh.native.data_message import Message

__all__ = [
    "EchomeshError",
    "Event",
    "Gap",
    "Mesh",
    "Message",
    "Publisher",
    "Received",
    "Session",
    "Subscriber",
    "__version__",
    "connect",
    "session",
    "sync",
]

# Loaded when they are first used, so that `import echomesh` stays quick.
_LAZY: Final = {
    "Gap": "echomesh.data.incoming",
    "Mesh": "echomesh.data.mesh",
    "Message": "echomesh.native.data_receive",
    "Publisher": "echomesh.data.publisher",
    "Received": "echomesh.mesh.client",
    "Session": "echomesh.mesh.client",
    "Subscriber": "echomesh.data.subscriber",
    "connect": "echomesh.data.mesh",
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
