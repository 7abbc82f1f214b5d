"""Where events stand is looked for once, and told in few bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomesh.log import TopicReader
from echomesh.spark import local
from echomesh.spark.local import LocalReach
from echomesh.spark.places import Places, spot_at_server
from echomesh.spark.reach import Range
from tests.native.test_spark_places import parsed
from tests.spark.support import made, opened

CARRIED = "carried"


def told(places: Places) -> list[tuple[int, int, int, str, str]]:
    """Number, start, until, topic and file of each; of those that came with it, that."""
    return [
        (one.number, one.start, one.until, one.topic, CARRIED if one.records else one.path)
        for one in parsed(places.packed())
    ]


def test_what_follows_a_known_place_is_not_looked_for_again_for_a_while(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[str, int]] = []
    real, now = TopicReader.place_of, [1000.0]

    def place_of(self: TopicReader, offset: int, until: int) -> object:
        looks.append((self.name, offset))
        return real(self, offset, until)

    monkeypatch.setattr(TopicReader, "place_of", place_of)
    monkeypatch.setattr(local, "monotonic", lambda: now[0])
    with opened(data) as log:
        log.append_many("a", made(2000))
        log.append_many("b", made(10))
        reach = LocalReach(str(data), "TST")
        first = told(reach.places([Range("a", 0, 5), Range("b", 2, 6)]))
        assert [one[:4] for one in first] == [(0, 0, 5, "a"), (1, 2, 6, "b")]
        assert all(Path(one[4]).is_file() for one in first)
        second = told(reach.places([Range("b", 6, 10), Range("a", 5, 9)]))
        assert [one[4] for one in second] == [CARRIED, CARRIED]
        assert looks == [("a", 0), ("b", 2)]
        reach.places([Range("a", 1000, 1010)])  # which is too far behind it
        now[0] += 1.5 * local.SPOT_S
        reach.places([Range("a", 1010, 1020)])
        assert looks[2:] == [("a", 1000), ("a", 1010)]
        reach.close()


def test_offsets_in_several_files_have_several_places(data: Path) -> None:
    with opened(data, segment_bytes=8192) as log:
        for first in range(0, 300, 10):
            log.append_many("a", made(10, first))
        reach = LocalReach(str(data), "TST")
        found = told(reach.places([Range("a", 7, 290)]))
        reach.close()
    assert len({path for *_, path in found}) == len(found) > 2
    assert [start for _, start, *_ in found] == [7, *(until for _, _, until, *_ in found[:-1])]
    assert found[-1][2] == 290


def test_a_server_has_places_without_a_file() -> None:
    places = Places()
    places.add(3, 5, 9, spot_at_server("t/ü"))
    assert told(places) == [(3, 5, 9, "t/ü", "")]
    assert (places.known, places.unknown) == (4, 0)
