"""The version, in its one place: the package metadata is made from it."""

__version__ = "0.1.0"
