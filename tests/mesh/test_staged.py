"""Staged publishes over the wire: rows as they are stored, commits that check, and errors with their figures."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from echomesh.errors import FencedWriter, RequestFailed, StageMissing, StaleWriter
from echomesh.mesh.bodies import Commit, CommittedStages, Stage, Staged
from echomesh.mesh.client import session
from echomesh.mesh.codes import Command
from echomesh.mesh.direct import Direct
from echomesh.mesh.log_bodies import AskOffsets, AskTopics
from echomesh.native.log_record import encode
from tests.mesh.support import Running, an_event, serving


@pytest.fixture
def run(shm_dir: Path) -> Callable[..., None]:
    """Runs a test beside a server, in a thread: it may wait."""

    def go(test: Callable[[Running, Direct], None]) -> None:
        async def inside() -> None:
            async with serving(shm_dir) as server:
                shop = Direct(f"127.0.0.1:{server.port}", "shop")
                try:
                    await asyncio.to_thread(test, server, shop)
                finally:
                    shop.close()

        asyncio.run(inside())

    return go


def rows(*events: bytes, first: int = 1, topic: int = 0) -> bytes:
    return b"".join(encode(first + at, topic, None, event) for at, event in enumerate(events))


def stage(shop: Direct, epoch: int, run: str, *numbers: int, writer: str = "w", topic: str = "orders") -> Staged:
    records = rows(*(an_event(number).encode() for number in numbers))
    body = Stage("", "", writer, epoch, run, 0, records=records, topics=[topic], done=True)
    staged: Staged = shop.ask(Command.STAGE_REQUEST, body)
    return staged


def commit(shop: Direct, epoch: int, run: str, *stages: Staged, writer: str = "w", **more: Any) -> CommittedStages:
    body = Commit("", "", writer, epoch, run, [staged.stage for staged in stages])
    body.rows = [staged.rows for staged in stages]
    body.checksums = [staged.checksum or 0 for staged in stages]
    for name, value in more.items():
        setattr(body, name, value)
    done: CommittedStages = shop.ask(Command.COMMIT_REQUEST, body)
    return done


def end(shop: Direct, topic: str = "orders") -> int:
    latest: int = shop.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", topic)).latest
    return latest


def test_rows_as_they_are_stored_appear_with_their_commit(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        several = Stage("", "", "w", 0, "r", 0, records=rows(an_event(1).encode()), topics=["a"])
        name = shop.ask(Command.STAGE_REQUEST, several).stage
        second = rows(an_event(2).encode(), first=2, topic=1) + rows(an_event(3).encode(), first=3, topic=0)
        body = Stage("", "", "w", 0, "r", 0, stage=name, records=second, topics=["b"], done=True)
        staged = shop.ask(Command.STAGE_REQUEST, body)
        assert (staged.rows, end(shop, "a"), end(shop, "b")) == (3, 0, 0)
        assert commit(shop, 0, "r", staged).rows == 3
        assert (end(shop, "a"), end(shop, "b")) == (2, 1)

    run(test)


@pytest.mark.parametrize(
    ("records", "topics", "why"),
    [
        (b"nonsense", ["a"], "are not rows"),
        (rows(an_event(1).encode(), first=2), ["a"], "not the next one"),
        (rows(an_event(1).encode(), topic=1), ["a"], "names topic 1 of 1"),
        (rows(an_event(1).encode())[:-8], ["a"], "are not rows"),
        (rows(an_event(1).encode())[:40] + b"\xff" + rows(an_event(1).encode())[41:], ["a"], "damaged"),
        (rows(b"\x81\xa2id\xa0"), ["a"], "specversion"),
        (rows(an_event(1).encode()), ["a", "/a"], "named twice"),
        (rows(an_event(1).encode()), ["a//b"], "empty"),
    ],
    ids=count(),  # events have the time of their making
)
def test_what_is_no_row_is_refused_whole(run: Callable[..., None], records: bytes, topics: list[str], why: str) -> None:
    def test(server: Running, shop: Direct) -> None:
        with pytest.raises(RequestFailed, match=why):
            shop.ask(Command.STAGE_REQUEST, Stage("", "", "w", 0, "r", 0, records=records, topics=topics, done=True))

    run(test)


def test_the_last_epoch_again_changes_nothing_and_is_warned_of_when_its_rows_differ(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    def test(server: Running, shop: Direct) -> None:
        assert not commit(shop, 3, "r", stage(shop, 3, "r", 1, 2)).repeated
        again = commit(shop, 3, "other", stage(shop, 3, "other", 1, 2))
        assert (again.rows, again.repeated, end(shop)) == (2, True, 2)
        assert server.server.core.counts.repeated_otherwise == 0
        again = commit(shop, 3, "third", stage(shop, 3, "third", 1, 2, 3))
        assert (again.rows, again.repeated, end(shop)) == (2, True, 2)
        assert server.server.core.counts.repeated_otherwise == 1
        assert "epoch=3 was committed with 2 rows" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(test)


def test_an_older_epoch_is_stale_and_a_replaced_run_is_fenced_with_figures(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        commit(shop, 7, "first", stage(shop, 7, "first", 1))
        with pytest.raises(StaleWriter) as stale:
            commit(shop, 5, "first", stage(shop, 5, "first", 2))
        assert (stale.value.writer, stale.value.epoch, stale.value.last_epoch) == ("w", 5, 7)
        late = stage(shop, 9, "first", 3)
        commit(shop, 8, "second", stage(shop, 8, "second", 4))
        with pytest.raises(FencedWriter) as fenced:
            commit(shop, 9, "first", late)
        assert (fenced.value.run, fenced.value.newer_run) == ("first", "second")
        assert end(shop) == 2

    run(test)


def test_a_commit_that_names_what_is_not_there_or_other_rows_fails_whole(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        good = stage(shop, 1, "r", 1)
        for rows_there, checksums in (([2], [good.checksum]), ([1], [(good.checksum or 0) ^ 1])):
            with pytest.raises(StageMissing, match="it has 1 rows and checksum") as wrong:
                commit(shop, 1, "r", good, rows=rows_there, checksums=checksums)
            assert wrong.value.stage == good.stage
        with pytest.raises(StageMissing, match="not there"):
            commit(shop, 1, "r", good, Staged("0" * 32, 1, 1))
        with pytest.raises(RequestFailed, match="go together"):
            commit(shop, 1, "r", good, rows=[])
        assert end(shop) == 0
        assert commit(shop, 1, "r", good).rows == 1

    run(test)


def test_a_writer_that_goes_back_is_refused_or_goes_on_from_there_and_drops_nothing(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        for epoch in range(5):
            commit(shop, epoch, "r1", stage(shop, epoch, "r1", epoch))
        with pytest.raises(StaleWriter):
            commit(shop, 3, "r2", stage(shop, 3, "r2", 13))
        assert commit(shop, 3, "r2", stage(shop, 3, "r2", 13), republish=True).rows == 1
        assert commit(shop, 3, "r2", stage(shop, 3, "r2", 13), republish=True).repeated
        # The last epoch of before is a new batch now; and nobody has to ask for it each time.
        assert not commit(shop, 4, "r2", stage(shop, 4, "r2", 14)).repeated
        assert commit(shop, 4, "r3", stage(shop, 4, "r3", 14)).repeated
        with pytest.raises(StaleWriter) as stale:
            commit(shop, 2, "r3", stage(shop, 2, "r3", 22))
        assert stale.value.last_epoch == 4
        assert not commit(shop, 2, "r3", stage(shop, 2, "r3", 22), republish=True).repeated
        with pytest.raises(FencedWriter):
            commit(shop, 5, "r1", stage(shop, 5, "r1", 5), republish=True)
        assert end(shop) == 8

    run(test)


def test_a_writer_that_went_back_by_one_batch_is_known_by_its_rows(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        commit(shop, 7, "r1", stage(shop, 7, "r1", 1))
        both = [stage(shop, 7, "r2", number) for number in (2, 3)]
        assert not commit(shop, 7, "r2", *both, republish=True).repeated
        assert commit(shop, 7, "r2", *both, republish=True).repeated
        assert end(shop) == 3

    run(test)


def test_the_asyncio_client_raises_the_same_errors(shm_dir: Path) -> None:
    async def inside() -> None:
        async with serving(shm_dir) as server, session(f"127.0.0.1:{server.port}", client_id="shop") as shop:
            writer = await shop.stage("w", 2, "r")
            await writer.add("orders", an_event(1))
            await shop.commit("w", 2, "r", [(await writer.close()).stage])
            with pytest.raises(StaleWriter) as stale:
                await shop.commit("w", 1, "r", [])
            assert stale.value.last_epoch == 2

    waiting: Coroutine[Any, Any, None] = inside()
    asyncio.run(waiting)


def test_bounds_of_ten_thousand_topics_come_with_one_request(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        names = [f"many/{number}" for number in range(10_000)]
        records = b"".join(rows(an_event(at).encode(), first=at + 1, topic=at) for at in range(10_000))
        body = Stage("", "", "w", 0, "r", 0, records=records, topics=names, done=True)
        commit(shop, 0, "r", shop.ask(Command.STAGE_REQUEST, body))
        found = shop.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", topics=[*names[:9999], "none"], time=0)).many
        assert found == [(0, 1, 0)] * 9999 + [None]
        with pytest.raises(RequestFailed, match="at most 10000"):
            shop.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", topics=[*names, "one more"]))

    run(test)


def test_a_commit_is_in_all_of_its_topics_or_in_none_whoever_asks(run: Callable[..., None]) -> None:
    names = [f"many/{number}" for number in range(300)]

    def publish(server: Running) -> None:
        writer = Direct(f"127.0.0.1:{server.port}", "shop")
        for epoch in range(40):
            topics = [*names, f"new/{epoch}"]
            records = b"".join(
                rows(an_event(1000 * epoch + at).encode(), first=at + 1, topic=at) for at in range(len(topics))
            )
            body = Stage("", "", "w", epoch, "r", 0, records=records, topics=topics, done=True)
            commit(writer, epoch, "r", writer.ask(Command.STAGE_REQUEST, body))
        writer.close()

    def test(server: Running, shop: Direct) -> None:
        publishing = Thread(target=publish, args=(server,))
        publishing.start()
        sys.setswitchinterval(1e-5)  # the server's commits are in another thread of this process
        seen: set[int] = set()
        while max(seen, default=0) < 40 and (publishing.is_alive() or not seen):
            found = shop.ask(Command.TOPICS_REQUEST, AskTopics("", "", filters=["many/*", "new/*"])).topics
            many = {state.latest for state in found if state.topic in names}
            assert many <= {sum(state.latest for state in found if state.topic not in names)}
            at = shop.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", topics=names)).many
            assert len({0 if state is None else state[1] for state in at}) == 1
            seen |= many
        publishing.join()
        assert len(seen) > 5, "it looked in between"

    before = sys.getswitchinterval()
    try:
        run(test)
    finally:
        sys.setswitchinterval(before)


def test_topics_are_listed_by_several_filters_and_by_no_more_than_there_may_be(run: Callable[..., None]) -> None:
    def test(server: Running, shop: Direct) -> None:
        for epoch, topic in enumerate(("orders/a", "orders/b", "other")):
            commit(shop, epoch, "r", stage(shop, epoch, "r", epoch, topic=topic))

        def names(filters: list[str]) -> list[str]:
            return [
                state.topic for state in shop.ask(Command.TOPICS_REQUEST, AskTopics("", "", filters=filters)).topics
            ]

        assert names(["orders/*", "orders/a", "other"]) == ["orders/a", "orders/b", "other"]
        assert names([]) == []
        with pytest.raises(RequestFailed, match="orders//a"):
            names(["other", "orders//a"])
        with pytest.raises(RequestFailed, match="at most 1000"):
            names(["other"] * 1001)

    run(test)
