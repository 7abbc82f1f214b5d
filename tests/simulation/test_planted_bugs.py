"""The simulation is not blind: bugs that are put into the server are found within a few runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import LogBehind
from echomesh.mesh import link, publishing
from echomesh.mesh.arrivals import Arrivals
from echomesh.mesh.core import MeshCore
from echomesh.mesh.delivery import Batches, Delivery, Grant, Share
from echomesh.mesh.link import Link, Outgoing
from echomesh.mesh.ranges import OriginRanges
from echomesh.mesh.subscriptions import Subscriptions
from echomesh.native.log_record import Records
from echomesh.native.mesh_frames import runs
from tests.simulation import promises
from tests.simulation.disk import Storage
from tests.simulation.witness import BrokenPromise
from tests.simulation.world import World
from tests.support.counts import count

Plant = Callable[[pytest.MonkeyPatch], None]


def events_of_bridges_are_taken_for_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginRanges, "missing", lambda self, o, e, t, first, number: [(first, first + number)])


def what_came_over_bridges_is_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def load(self: OriginRanges, environment: str, topic: str, read: Any, most: int | None = None) -> bool:
        known = self._topics.setdefault((environment, topic), self._checkpointed("", ""))
        known.loaded = True
        return True

    patch.setattr(OriginRanges, "load", load)


def acknowledgements_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshCore, "store", lambda self, share: None)


def acknowledgements_are_stored_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Share, "acknowledged", property(lambda share: share.next))


def what_a_leaving_member_had_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def give_back(share: Share, grant: Grant) -> None:
        grant.runs.clear()
        share.grants.remove(grant)

    patch.setattr(Share, "give_back", give_back)


def an_event_is_skipped_now_and_then(patch: pytest.MonkeyPatch) -> None:
    get = Batches.get

    def skipping(self: Batches, environment: str, topic: str, offset: int, *rest: Any) -> Any:
        try:
            return get(self, environment, topic, offset + (offset % 7 == 6), *rest)
        except LogBehind:  # there is none behind it
            return get(self, environment, topic, offset, *rest)

    patch.setattr(Batches, "get", skipping)


def credit_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    freed = Delivery._freed
    patch.setattr(Delivery, "_freed", lambda self, size: freed(self, 2 * size))


def links_go_on_before_they_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    forward = Link._forward

    def eager(self: Link, key: tuple[str, str], out: Outgoing, *what: Any) -> None:
        forward(self, key, out, *what)
        self._acknowledge(key, out, out.next)

    patch.setattr(Link, "_forward", eager)


def targeted_events_go_over_bridges(patch: pytest.MonkeyPatch) -> None:
    def careless(records: Records, peer: bytes) -> list[tuple[int, int, bytes | None, bool]]:
        return [(first, end, of, of is not None and of[:16] == peer) for first, end, of, _ in runs(records, peer)]

    patch.setattr(link, "runs", careless)


def bridged_events_are_acknowledged_before_they_are_on_disk(patch: pytest.MonkeyPatch) -> None:
    take = Arrivals.take

    def hasty(self: Arrivals, body: Any, came: Any, kept: Any) -> None:
        kept(True, None)
        take(self, body, came, lambda known, pending: None)

    patch.setattr(Arrivals, "take", hasty)


def the_disk_lies_about_its_syncs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Storage, "fdatasync", lambda disk, handle: disk._step())


def sessions_leave_their_filters(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Subscriptions, session: Any) -> None:
        for grant in list(session.delivery.grants.values()):
            session.delivery.remove(grant)
            self._leave(grant.share)

    patch.setattr(Subscriptions, "leave", leave)


def dead_letters_are_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publishing, "bury", lambda core, share, body, tries, done: done(None))


PLANTS: list[Plant] = [
    events_of_bridges_are_taken_for_new,
    what_came_over_bridges_is_forgotten_at_a_restart,
    acknowledgements_are_not_stored,
    acknowledgements_are_stored_too_early,
    what_a_leaving_member_had_is_dropped,
    an_event_is_skipped_now_and_then,
    credit_is_given_twice,
    links_go_on_before_they_are_acknowledged,
    targeted_events_go_over_bridges,
    bridged_events_are_acknowledged_before_they_are_on_disk,
    the_disk_lies_about_its_syncs,
    sessions_leave_their_filters,
    dead_letters_are_not_written,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch, shm_dir: Path) -> None:
    plant(monkeypatch)
    for seed in range(count(200, 200)):
        world = World(seed, shm_dir / str(seed))
        try:
            world.run()
            promises.check(world)
        except BrokenPromise:
            return
    pytest.fail("nobody noticed")
