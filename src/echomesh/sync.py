"""echomesh without async: the same names, for threads."""

from echomesh.mesh.sync import Lost, Pending, Received, Session, StageWriter, Subscription, session

__all__ = ["Lost", "Pending", "Received", "Session", "StageWriter", "Subscription", "session"]
