"""Tickets: a part of a client's rights, for an hour, to those who don't get its password."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import (
    ConnectionLost,
    EchomeshError,
    NotAuthorized,
    RateLimited,
    RequestFailed,
    UnauthorizedPublish,
    UnauthorizedSubscribe,
)
from echomesh.events import Event
from echomesh.mesh.access import Access
from echomesh.mesh.bodies import Abort, AskTicket, Commit, Publish, Stage, Subscribe, Ticket
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.direct import Direct
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch
from echomesh.mesh.passwords import PasswordHash
from echomesh.mesh.tickets import KEY_FILE, LASTS_S, Scope, Tickets, read_key
from echomesh.mesh.verifying import SyncAccess
from echomesh.native.log_record import encode, scan
from tests.mesh.support import Running, an_event, serving

OPENED: list[Direct] = []
SECRET = PasswordHash.of("secret").text


def access_of(publish: str = "orders/**", subscribe: str = "orders/**", rate: str = "", secret: str = SECRET) -> Access:
    return Access.parse(
        f"""
[clients.shop]
password = "{secret}"
environments = ["TST"]
publish = ["{publish}"]
subscribe = ["{subscribe}"]
{rate}

[clients.other]
password = "{secret}"
environments = ["TST"]
"""
    )


def run(directory: Path, test: Callable[[Running], Coroutine[Any, Any, None]], access: Access | None = None) -> None:
    async def inside() -> None:
        async with serving(directory, access=access_of() if access is None else access) as server:
            try:
                await test(server)
            finally:
                while OPENED:
                    OPENED.pop().close()

    asyncio.run(inside())


def driver(server: Running, client_id: str = "shop") -> Direct:
    return opened(Direct(f"127.0.0.1:{server.port}", client_id, password="secret"))


def opened(made: Direct) -> Direct:
    OPENED.append(made)
    return made


def ask_ticket(session: Direct, right: str, *filters: str) -> str:
    given: Ticket = session.ask(Command.TICKET_REQUEST, AskTicket("", "", right, list(filters) or None))
    assert given.seconds == LASTS_S
    return given.ticket


def task(server: Running, ticket: str, purpose: Purpose = Purpose.SUBSCRIBE, client_id: str = "shop") -> Direct:
    return opened(Direct(f"127.0.0.1:{server.port}", client_id, ticket=ticket, purpose=purpose, outage_s=0.0))


def rows(*numbers: int, first: int = 1, topic: int = 0) -> bytes:
    return b"".join(encode(first + at, topic, None, an_event(number).encode()) for at, number in enumerate(numbers))


def a_stage(*, records: bytes | None = None, **more: Any) -> Stage:
    return Stage("", "", "w", 1, "r", 0, records=records, **more)


def refused(session: Direct, command: Command, body: Any) -> EchomeshError:
    with pytest.raises(EchomeshError) as found:
        session.receive(session.send(command, body))
    return found.value


def test_a_ticket_to_read_reads_its_topics_and_does_nothing_else(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        await server.log.append("orders/a", an_event(1).encode())
        await server.log.append("orders/b", an_event(2).encode())

        def inside() -> None:
            reader = task(server, ask_ticket(driver(server), "read", "orders/a"))
            assert [found.topic for found in reader.ask(Command.TOPICS_REQUEST, AskTopics("", "")).topics] == [
                "orders/a"
            ]
            found = reader.ask(Command.FETCH_REQUEST, Fetch("", "", "orders/a", 0))
            assert Event.decode(scan(found.records, 0, 0)[0][3]).id == "e1"
            assert reader.ask(Command.OFFSETS_REQUEST, AskOffsets("", "", "orders/a")).latest == 1
            refusal = refused(reader, Command.FETCH_REQUEST, Fetch("", "", "orders/b", 0))
            assert isinstance(refusal, UnauthorizedSubscribe)
            for command, body in (
                (Command.SUBSCRIBE_REQUEST, Subscribe("", "", ["orders/a"])),
                (Command.PUBLISH_MESSAGE_REQUEST, Publish("", "", "orders/a", an_event(3).encode())),  # type: ignore[arg-type]
                (Command.STAGE_REQUEST, a_stage()),
                (Command.COMMIT_REQUEST, Commit("", "", "w", 1, "r", [])),
                (Command.TICKET_REQUEST, AskTicket("", "", "read", None)),
            ):
                assert isinstance(refused(reader, command, body), NotAuthorized), command

        await asyncio.to_thread(inside)

    run(shm_dir, test)


def test_a_ticket_to_stage_stages_and_neither_publishes_nor_commits(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        def inside() -> None:
            session = driver(server)
            writer = task(server, ask_ticket(session, "stage", "orders/a"), Purpose.PUBLISH)
            staged = writer.ask(Command.STAGE_REQUEST, a_stage(records=rows(1, 2), topics=["orders/a"], done=True))
            assert staged.rows == 2
            not_named = a_stage(records=rows(1), topics=["orders/b"], done=True)
            assert isinstance(refused(writer, Command.STAGE_REQUEST, not_named), UnauthorizedPublish)
            for command, body in (
                (Command.PUBLISH_MESSAGE_REQUEST, Publish("", "", "orders/a", an_event(3).encode())),  # type: ignore[arg-type]
                (Command.COMMIT_REQUEST, Commit("", "", "w", 1, "r", [staged.stage])),
                (Command.ABORT_REQUEST, Abort("", "", "w", 1)),
                (Command.FETCH_REQUEST, Fetch("", "", "orders/a", 0)),
            ):
                assert isinstance(refused(writer, command, body), NotAuthorized), command
            done = Commit("", "", "w", 1, "r", [staged.stage], rows=[2], checksums=[staged.checksum])
            assert session.ask(Command.COMMIT_REQUEST, done).rows == 2

        await asyncio.to_thread(inside)

    run(shm_dir, test)


def test_a_session_gets_no_ticket_for_more_than_it_may(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        def inside() -> None:
            session = driver(server)
            with pytest.raises(UnauthorizedSubscribe):
                ask_ticket(session, "read", "**")
            with pytest.raises(RequestFailed, match="Right is one of read, stage"):
                ask_ticket(session, "admin")
            with pytest.raises(RequestFailed, match="too long"):
                ask_ticket(session, "read", *(f"orders/{'x' * 200}/{i}" for i in range(300)))
            # Without filters it is all that the client may; what a ticket names beyond that, it is not good for.
            for filters in ((), ("**",)):
                writer = task(server, ask_ticket(session, "stage", *filters), Purpose.PUBLISH)
                body = a_stage(records=rows(1), topics=["private"])
                assert isinstance(refused(writer, Command.STAGE_REQUEST, body), UnauthorizedPublish)

        await asyncio.to_thread(inside)

    run(shm_dir, test)


def test_a_ticket_is_good_for_its_client_its_environment_and_its_purpose(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        def inside() -> None:
            ticket = ask_ticket(driver(server), "read")
            ask = AskTopics("", "")
            task(server, ticket).ask(Command.TOPICS_REQUEST, ask)
            with pytest.raises(NotAuthorized, match="worth nothing"):
                task(server, ticket, client_id="other").ask(Command.TOPICS_REQUEST, ask)
            elsewhere = Direct(f"127.0.0.1:{server.port}", "shop", ticket=ticket, environment="PRD", outage_s=0.0)
            with pytest.raises(NotAuthorized):
                elsewhere.ask(Command.TOPICS_REQUEST, ask)
            with pytest.raises(ConnectionLost, match="is for Purpose 0"):
                task(server, ticket, Purpose.PUBLISH).ask(Command.TOPICS_REQUEST, ask)

        await asyncio.to_thread(inside)

    run(shm_dir, test)


def test_a_ticket_with_any_character_changed_is_refused_and_guessing_slows_down(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        def inside() -> None:
            ticket = ask_ticket(driver(server), "read", "orders/**")
            tickets, access = server.server.core.tickets, SyncAccess(access_of)
            assert tickets.verify(ticket, "shop", server.server.core.judge(local=True)) is not None
            for at in range(len(ticket)):
                changed = ticket[:at] + ("A" if ticket[at] != "A" else "B") + ticket[at + 1 :]
                assert tickets.verify(changed, "shop", access) is None or at == len(ticket) - 1
            for text in ("", "emt1.", "emt1.AAAA", ticket[:-4], "x" * 100_000, "emt1.é"):
                assert tickets.verify(text, "shop", access) is None
            with pytest.raises(NotAuthorized):
                task(server, ticket[:-9] + "AAAAAAAAA").ask(Command.TOPICS_REQUEST, AskTopics("", ""))
            for _ in range(5):
                with pytest.raises(NotAuthorized):
                    task(server, "emt1.AAAA").ask(Command.TOPICS_REQUEST, AskTopics("", ""))
            with pytest.raises(NotAuthorized, match="too many"):
                task(server, "emt1.AAAA").ask(Command.TOPICS_REQUEST, AskTopics("", ""))

        await asyncio.to_thread(inside)

    run(shm_dir, test)


def test_a_ticket_ends_after_its_hour_and_with_its_clients_entry() -> None:
    now = [1000.0]
    tickets = Tickets(bytes(32), lambda: now[0])
    before = SyncAccess(access_of)
    scope = Scope("shop", "TST", "read", ["orders/**"], tickets.until())
    ticket = tickets.make(scope, before.mark("shop"))
    assert tickets.verify(ticket, "shop", before) is not None
    for changed in (
        access_of(publish="orders/eu"),
        access_of(secret=PasswordHash.of("secret").text),  # the same password, set anew
        Access(),
    ):
        assert tickets.verify(ticket, "shop", SyncAccess(lambda found=changed: found)) is None  # type: ignore[misc]
    now[0] += LASTS_S - 1
    assert tickets.verify(ticket, "shop", before) is not None
    now[0] += 1
    assert tickets.verify(ticket, "shop", before) is None
    assert Tickets(b"1" * 32, lambda: 1000.0).verify(ticket, "shop", before) is None


def test_the_connection_of_a_ticket_ends_with_it(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        core = server.server.core
        scope = Scope("shop", "TST", "read", None, core.tickets.until() - LASTS_S + 0.3)
        ticket = core.tickets.make(scope, core.judge(local=True).mark("shop"))
        client = await server.connect()
        answer = await client.hello("shop", ticket=ticket)
        assert answer.status == 0, answer.description
        assert await client.closed()

    run(shm_dir, test)


def test_limits_hold_for_tickets_as_for_their_client(shm_dir: Path) -> None:
    async def test(server: Running) -> None:
        def inside() -> None:
            writer = task(server, ask_ticket(driver(server), "stage"), Purpose.PUBLISH)
            numbers = range(20)
            writer.ask(Command.STAGE_REQUEST, a_stage(records=rows(*numbers), topics=["orders/a"]))
            again = a_stage(records=rows(*numbers), topics=["orders/a"])
            assert isinstance(refused(writer, Command.STAGE_REQUEST, again), RateLimited)

        await asyncio.to_thread(inside)

    run(shm_dir, test, access_of(rate="publishes_per_second = 10"))


def test_tickets_and_passwords_are_in_no_log_and_no_error(shm_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []

    async def test(server: Running) -> None:
        def inside() -> None:
            session = driver(server)
            ticket = ask_ticket(session, "read")
            reader = task(server, ticket)
            said.extend((repr(session), repr(reader)))
            wrong = task(server, ticket[:-5] + "AAAAA")
            for broken in (reader, wrong):
                with pytest.raises(EchomeshError) as found:
                    broken.ask(Command.FETCH_REQUEST, Fetch("", "", "orders/none", 0))
                said.append(repr(found.value))
            assert not any(ticket[:40] in text or "secret" in text for text in (*said, caplog.text))

        await asyncio.to_thread(inside)

    with caplog.at_level(logging.DEBUG):
        run(shm_dir, test)


def test_the_key_is_the_owners_alone_and_stays_the_same(tmp_path: Path) -> None:
    key = read_key(tmp_path)
    assert read_key(tmp_path) == key
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"torn")
    assert len(read_key(tmp_path)) == 32
