"""Spark is an extra: who asks for it without PySpark is told what to install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from echomesh.errors import UsageError

_PACKAGES: Final = ("pyspark", "py4j")


@contextlib.contextmanager
def pyspark_needed() -> Iterator[None]:
    """Raises UsageError for an import within that fails for want of PySpark."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise UsageError('Spark needs PySpark: pip install "echomesh[spark]"') from error
