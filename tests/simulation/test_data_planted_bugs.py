"""The simulation of the data plane finds bugs: each of these is planted, and must be found within a few runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomesh.data import beacon, membership
from echomesh.data.local import Locals
from echomesh.data.membership import Membership
from echomesh.data.participant_core import ParticipantCore
from tests.simulation.data_world import DataWorld

TRIES = 150


def found() -> bool:
    for seed in range(TRIES):
        try:
            DataWorld(seed).run()
        except Exception:
            return True
    return False


def nothing(*_: Any) -> None:
    pass


def told_again(self: Locals, end: Any, other: Any, *, listed: bool = False) -> None:
    end.others.setdefault(other.id, []).append(other)
    if not listed:
        self._tell(end, other)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Membership, "_undial", nothing),
        (Locals, "_show", told_again),
        (ParticipantCore, "_peer_left", nothing),
        (ParticipantCore, "_left", nothing),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found()


@pytest.mark.parametrize(("module", "name"), [(membership, "_PATIENCE_BEACONS"), (beacon, "EXPIRY_BEACONS")])
def test_a_participant_that_waits_for_ever_is_found(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    monkeypatch.setattr(module, name, 1e9)
    assert found()
