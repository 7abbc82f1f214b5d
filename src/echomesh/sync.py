"""echomesh without async: the same names, for threads."""

from echomesh.data.sync import Mesh, Publisher, Subscriber, connect
from echomesh.mesh.sync import Lost, Pending, Received, Session, StageWriter, Subscription, session

__all__ = [
    "Lost",
    "Mesh",
    "Pending",
    "Publisher",
    "Received",
    "Session",
    "StageWriter",
    "Subscriber",
    "Subscription",
    "connect",
    "session",
]
