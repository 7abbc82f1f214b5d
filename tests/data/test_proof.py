"""Proof of shared memory: found in the own directory, for a live nukleus, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.data.proof import has_proof, leave_proof, proven
from echomesh.nukleus import SMALL, Directory, Echo, Nukleus


@pytest.fixture
def nukleus(shm_dir: Path) -> Iterator[Nukleus]:
    with Nukleus("one", Echo(), directory=shm_dir / "m", capacities=SMALL) as made:
        yield made


def test_the_token_that_was_left_is_found(nukleus: Nukleus) -> None:
    proof = leave_proof(nukleus.place)
    assert proven(nukleus.directory, "one", proof)
    assert has_proof(nukleus.place)
    assert (nukleus.place.path / "proof").stat().st_mode & 0o777 == 0o600


def test_another_token_proves_nothing(nukleus: Nukleus) -> None:
    proof = leave_proof(nukleus.place)
    for wrong in (b"", bytes(16), proof[:-1], proof + b"x", leave_proof(nukleus.place)[::-1]):
        assert not proven(nukleus.directory, "one", wrong)


@pytest.mark.parametrize("name", ["", "two", "../m/one", ".participant", "one/../one", "x" * 300])
def test_another_name_proves_nothing(nukleus: Nukleus, name: str) -> None:
    assert not proven(nukleus.directory, name, leave_proof(nukleus.place))


def test_another_directory_proves_nothing(nukleus: Nukleus, shm_dir: Path) -> None:
    assert not proven(Directory(shm_dir / "other"), "one", leave_proof(nukleus.place))


def test_nothing_left_proves_nothing(nukleus: Nukleus) -> None:
    assert not has_proof(nukleus.place)
    assert not proven(nukleus.directory, "one", b"")


def test_a_link_to_a_token_proves_nothing(nukleus: Nukleus, shm_dir: Path) -> None:
    proof = leave_proof(nukleus.place)
    file = nukleus.place.path / "proof"
    file.rename(shm_dir / "elsewhere")
    file.symlink_to(shm_dir / "elsewhere")
    assert not proven(nukleus.directory, "one", proof)


def test_the_dead_prove_nothing(shm_dir: Path) -> None:
    directory = Directory(shm_dir / "m")
    place, lock = directory.settle("one")
    proof = leave_proof(place)
    assert proven(directory, "one", proof)
    lock.release()
    assert not proven(directory, "one", proof)
