"""echomesh: the event mesh for Python and Spark."""

from echomesh._version import __version__

__all__ = ["__version__"]
