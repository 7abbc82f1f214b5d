"""What the log asks of a disk: a tiny interface, the real one, and one that loses what was not synced."""

from echomesh.log.storage.base import Storage
from echomesh.log.storage.real import RealStorage
from echomesh.log.storage.simulated import PowerCut, SimulatedStorage

__all__ = ["PowerCut", "RealStorage", "SimulatedStorage", "Storage"]
