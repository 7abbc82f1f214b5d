"""What comes again, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echomesh.events import Event
from echomesh.mesh import protocol
from echomesh.mesh.bodies import Deliver, Nack, Nacked
from echomesh.mesh.codes import Command
from echomesh.mesh.delivery import Share
from echomesh.mesh.options import MeshOptions
from echomesh.native.log_record import Records
from tests.mesh.commands import acknowledge, delivered, publish, subscribe
from tests.mesh.support import Running, an_event


def test_a_refused_event_comes_again_and_then_goes_to_the_dead_letters(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a", "dead/**")
        await publish(publisher, "a", an_event(0))
        await publish(publisher, "a", an_event(1))
        got = 0
        while got < 2:
            got += len((await delivered(reader)).cloud_events)
        tries = []
        again: Deliver | None = None
        for turn in range(3):
            nack = Nack("reader", reader.session_id, "a", 0, delay=0.0, reason="no such order")
            seq = reader.send(Command.NACK_REQUEST, nack)
            told: Nacked | None = None
            again = None
            while told is None or (turn < 2 and again is None):
                message = await reader.receive()
                if message.seq == seq:
                    told = protocol.body_of(message)
                else:
                    again = protocol.body_of(message)
            tries.append((told.tries, told.dead))
            if again is not None and turn < 2:
                assert (again.topic, again.offset, again.tries) == ("a", 0, turn + 2)
        assert tries == [(1, False), (2, False), (3, True)]
        letter = again if again is not None and again.topic == "dead/a" else await delivered(reader)
        event = Event.decode(letter.cloud_events[0])
        assert (letter.topic, event.id) == ("dead/a", "e0")
        assert (event.extensions["deadreason"], event.extensions["deadtries"]) == ("no such order", 3)
        acknowledge(reader, "a", 2)
        await reader.ask(Command.HEARTBEAT_REQUEST)
        assert server.server.core.cursors.cursor("TST", ("client", "reader"), "a") == 2

    run(test, MeshOptions(max_tries=3))


def test_a_topic_is_not_read_beyond_its_end(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a")
        log, reads = server.server.port, list[int]()
        real = log.read

        def read(environment: str, topic: str, offset: int, **limits: int) -> Records:
            reads.append(offset)
            return real(environment, topic, offset, **limits)

        monkeypatch.setattr(log, "read", read)
        for number in range(5):
            await publish(publisher, "a", an_event(number))
            assert (await delivered(reader)).offset == number
        assert reads == [0, 1, 2, 3, 4]

    run(test)


def test_an_acknowledgement_of_all_before_it_does_not_count_for_what_was_refused(run: Callable[..., None]) -> None:
    async def test(server: Running) -> None:
        reader, publisher = await server.client("reader"), await server.publisher()
        await subscribe(reader, "a")
        for number in range(4):
            await publish(publisher, "a", an_event(number))
        while (await delivered(reader)).offset < 3:
            pass
        nack = Nack("reader", reader.session_id, "a", 1, delay=0.2)
        assert (await reader.ask(Command.NACK_REQUEST, nack)).status == 0
        newer = await server.client("reader")  # of the same client, which knows nothing of it
        await subscribe(newer, "a")
        first = await delivered(newer)
        assert first.offset == 0, "it was not acknowledged"
        acknowledge(newer, "a", 4)
        again = await delivered(newer)
        while again.offset != 1:
            again = await delivered(newer)
        assert (again.tries, Event.decode(again.cloud_events[0]).id) == (2, "e1")
        cursor = server.server.core.cursors.cursor
        assert cursor("TST", ("client", "reader"), "a") == 1
        acknowledge(newer, "a", 4)
        await newer.ask(Command.HEARTBEAT_REQUEST)
        assert cursor("TST", ("client", "reader"), "a") == 4

    run(test)


def test_a_share_goes_on_behind_all_but_what_was_refused() -> None:
    share = Share("TST", ("client", "c"), "a", 0)
    share.next = 20
    share.returned = [(2, 5), (7, 8), (9, 15)]
    share.waiting = {3}
    share.tries = {1: 1, 3: 2, 7: 1}
    share.goes_on_at(12)
    assert share.returned == [(7, 8), (12, 15)]
    assert share.waiting == {3}
    share.forget_tries(0, 12)
    assert share.tries == {3: 2, 7: 1}
    assert share.acknowledged == 3
