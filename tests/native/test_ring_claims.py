"""Writing in place and reading in place: what views may do, and what becomes of those that stay."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest

from echomesh.errors import BusyError, ClosedError, UsageError, ViewKept
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring
from echomesh.native.ring_views import Claim
from echomesh.native.waiter import Waiter
from tests.native.support.memory import RING_TRAILER, get32, scratch
from tests.native.support.processes import run_code


def a_ring(capacity: int = 1024) -> tuple[Mapping, Ring]:
    mapping = scratch(capacity + RING_TRAILER)
    return mapping, Ring(mapping)


def claimed(ring: Ring, length: int, kind: int = 1) -> Claim:
    claim = ring.claim(kind, length)
    assert claim is not None
    return claim


def test_a_claim_is_filled_in_place_and_committed() -> None:
    mapping, ring = a_ring()
    claim = claimed(ring, 5, kind=7)
    assert (claim.length, get32(mapping, 0)) == (5, -13)
    with memoryview(claim) as view:
        assert (view.readonly, len(view)) == (False, 5)
        view[:] = b"hello"
    assert ring.drain() == []
    assert ring.blocked()
    claim.commit()
    assert ring.drain() == [(7, b"hello")]


def test_a_claim_as_a_context_manager_commits() -> None:
    _, ring = a_ring()
    with claimed(ring, 3) as view:
        view[:] = b"abc"
    assert ring.drain() == [(1, b"abc")]


def test_a_claim_whose_block_raises_is_padded() -> None:
    _, ring = a_ring()
    with pytest.raises(ZeroDivisionError), claimed(ring, 3) as view:
        view[0] = 1 // 0
    ring.write(2, b"behind")
    assert ring.drain() == [(2, b"behind")]
    assert ring.head == ring.tail


def test_an_aborted_claim_is_skipped() -> None:
    mapping, ring = a_ring()
    claimed(ring, 100).abort()
    assert ring.drain() == []
    assert ring.head == ring.tail == 112
    assert bytes(memoryview(mapping)[:1024]) == bytes(1024)


def test_a_lost_claim_is_padded() -> None:
    _, ring = a_ring()
    claim = claimed(ring, 9)
    ring.write(2, b"behind")
    assert ring.drain() == []
    del claim
    assert ring.drain() == [(2, b"behind")]


def test_a_claim_ends_once() -> None:
    _, ring = a_ring()
    for first in (Claim.commit, Claim.abort):
        for second in (Claim.commit, Claim.abort, memoryview):
            claim = claimed(ring, 4)
            first(claim)
            with pytest.raises(ClosedError):
                second(claim)
    assert len(ring.drain()) == 3


def test_a_claim_with_a_view_in_use_is_not_published() -> None:
    _, ring = a_ring()
    claim = claimed(ring, 4)
    view = memoryview(claim)
    part = view[1:3]
    for end in (claim.commit, claim.abort):
        with pytest.raises(ViewKept):
            end()
    view.release()
    with pytest.raises(ViewKept):
        claim.commit()
    assert ring.drain() == []
    part.release()
    claim.commit()
    assert ring.drain() == [(1, bytes(4))]


def test_a_view_kept_from_a_claims_block_is_told_and_its_end_aborts_the_claim() -> None:
    _, ring = a_ring()
    kept: list[memoryview] = []
    with pytest.raises(ViewKept), claimed(ring, 4) as view:
        kept.append(view[1:])
    assert ring.blocked()
    kept[0][0] = 1  # still the claim's own memory
    kept.clear()
    gc.collect()
    assert not ring.blocked()
    assert ring.drain() == []


def test_the_error_of_a_claims_block_goes_before_a_view_that_its_traceback_keeps() -> None:
    _, ring = a_ring()

    def fill() -> None:
        with claimed(ring, 4) as view:
            part = view[1:]
            raise KeyError(len(part))

    with pytest.raises(KeyError):
        fill()
    gc.collect()
    assert not ring.blocked()


def test_a_claim_outlives_its_ring_object_and_a_closed_ring() -> None:
    mapping, ring = a_ring()
    claim = claimed(ring, 2)
    ring.close()
    del ring
    gc.collect()
    with memoryview(claim) as view:
        view[:] = b"ok"
    claim.commit()
    assert Ring(mapping).drain() == [(1, b"ok")]


def test_there_is_one_open_claim_in_a_ring_whose_writers_take_turns() -> None:
    mapping = scratch(1024 + RING_TRAILER)
    ring = Ring(mapping, serial=True)
    claim = claimed(ring, 8)
    for call in (lambda: ring.write(1, b""), lambda: ring.claim(1, 1), lambda: ring.write_many(1, [b""])):
        with pytest.raises(BusyError):
            call()
    claim.commit()
    assert ring.write(2, b"next")
    assert ring.drain() == [(1, bytes(8)), (2, b"next")]


def test_a_read_view_is_the_message_in_place_and_ends_with_the_call() -> None:
    _, ring = a_ring()
    ring.write(1, b"message")
    views: list[memoryview] = []

    def handler(kind: int, view: memoryview) -> None:
        assert (view.readonly, view.format, view.nbytes) == (True, "B", 7)
        assert bytes(view) == b"message"
        view.release()
        views.append(view)

    assert ring.read(handler) == 1
    with pytest.raises(ValueError, match="released"):
        bytes(views[0])


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda view: view[2:4], id="a slice"),
        pytest.param(memoryview, id="another view"),
        pytest.param(lambda view: view.cast("B", (2, 4)), id="a cast"),
        # As numpy.frombuffer does it: then the view can't even be released.
        pytest.param(pickle.PickleBuffer, id="another library's view"),
    ],
)
def test_a_kept_view_is_told_and_its_message_is_consumed(keep: Any) -> None:
    _, ring = a_ring()
    ring.write_many(1, [b"12345678", b"next one"])
    kept: list[object] = []
    with pytest.raises(ViewKept):
        ring.read(lambda kind, view: kept.append(keep(view)))
    got: list[bytes] = []
    assert ring.read(lambda kind, view: got.append(bytes(view))) == 1
    assert got == [b"next one"]
    kept.clear()


def test_the_handlers_error_goes_before_a_view_that_its_traceback_keeps() -> None:
    _, ring = a_ring()
    ring.write_many(1, [b"first", b"second"])

    def handler(kind: int, view: memoryview) -> None:
        part = view[1:]
        raise KeyError(len(part))

    with pytest.raises(KeyError):
        ring.read(handler)
    assert ring.drain() == [(1, b"second")]


def test_kept_views_stay_valid_memory_when_everything_else_is_gone() -> None:
    out = run_code(
        """
        import gc, tempfile
        from echomesh.errors import ViewKept
        from echomesh.native.mapping import Mapping
        from echomesh.native.ring import Ring

        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            mapping = Mapping.create(directory + "/ring", 65536 + 768)
        ring = Ring(mapping)
        ring.write(1, b"x" * 8000)
        kept = []
        try:
            ring.read(lambda kind, view: kept.append(view[:]))
        except ViewKept:
            kept.append(memoryview(ring.claim(1, 8000)))
        ring.close()
        del ring, mapping
        gc.collect()
        kept[1][:] = bytes(kept[0])
        print(len(kept[0]), sum(kept[1]))
        """
    )
    assert out == "8000 0\n"


@pytest.mark.parametrize("bell", [False, True])
def test_a_claim_that_dies_in_a_garbage_cycle_is_padded_in_memory_that_is_still_there(bell: bool) -> None:
    out = run_code(
        f"""
        import gc, tempfile
        from echomesh.native.doorbell import Doorbell
        from echomesh.native.mapping import Mapping
        from echomesh.native.ring import Ring

        class Holder:
            pass

        gc.disable()
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            for number in range(10):
                path = f"{{directory}}/ring{{number}}"
                ring = Ring(Mapping.create(path, 65536 + 768))
                if {bell}:
                    ring.connect_reader(Doorbell.create(path + ".bell"))
                holder = Holder()
                holder.itself, holder.claim = holder, ring.claim(1, 8)
                claim = ring.claim(1, 8)
                claim.__enter__()
                del ring, holder, claim
                gc.collect()
                left = Ring(Mapping.open(path))
                print(left.drain(), left.size)
        """
    )
    assert out.splitlines() == ["[] 0"] * 10


def test_a_ring_that_is_mapped_for_reading_only_can_be_looked_at_and_no_more(shm_dir: Any) -> None:
    writer = Ring(Mapping.create(shm_dir / "ring", 1024 + RING_TRAILER))
    writer.write(1, b"seen")
    ring = Ring(Mapping.open(shm_dir / "ring", writable=False))
    assert (ring.readable(), ring.blocked(), ring.size) == (True, False, 16)
    for call in (
        ring.drain,
        ring.unblock,
        ring.next_correlation_id,
        lambda: ring.write(1, b""),
        lambda: ring.claim(1, 1),
        lambda: ring.has_room(1),
        lambda: ring.read(lambda *_: None),
        lambda: ring.connect_reader(None),
        lambda: ring.connect_writer(None),
        lambda: setattr(ring, "heartbeat", 1),
        lambda: Waiter().watch([], [(ring, 8)]),
    ):
        with pytest.raises(UsageError):
            call()
