"""A mesh for the tests of publishers and subscribers."""

from tests.data.shm_fixtures import mesh, options

__all__ = ["mesh", "options"]
