"""echomesh: the event mesh for Python and Spark."""

from echomesh._version import __version__
from echomesh.errors import EchomeshError
from echomesh.events import Event

__all__ = ["EchomeshError", "Event", "__version__"]
