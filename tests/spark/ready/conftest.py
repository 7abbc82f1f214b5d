"""A city to run pipelines on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.ready.city import City


@pytest.fixture
def city(data: Path) -> City:
    """A log with two minutes of a city."""
    made = City(data)
    made.live()
    return made
