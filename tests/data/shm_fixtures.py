"""A mesh for the tests of publishers and subscribers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomesh.sync import Mesh, connect
from tests.data.shm_support import gone, options_in


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Of a mesh for all tests of a file; its participant has ended at the end, and left nothing."""
    path = Path(tempfile.mkdtemp(prefix="echomesh-test-data-", dir="/dev/shm"))
    try:
        made = options_in(path)
        with connect(**made):
            yield made
        gone(made)
    finally:
        shutil.rmtree(path)


@pytest.fixture
def mesh(options: dict[str, Any]) -> Iterator[Mesh]:
    """This process in that mesh."""
    with connect(**options) as made:
        yield made
