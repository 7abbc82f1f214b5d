"""The participant's shell: real sockets and files, in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from echomesh.data import matching, participant_core, wire
from echomesh.data.config import PARTICIPANT_PORT, DataOptions
from echomesh.data.link import PublisherLink, SubscriberLink
from echomesh.data.looking import look
from echomesh.data.messages import Credentials, InitLook, LookInitFailed, Process, Reason
from echomesh.data.participant import Participant
from echomesh.data.starting import Home, find
from echomesh.errors import (
    InitFailed,
    NoParticipant,
    NotAuthorised,
    OwnerAlive,
    PortTaken,
    TooManyEndpoints,
    TopicRefused,
    WrongDomain,
    WrongVersion,
)
from tests.support.ports import free_port


def options(root: Path, **more: Any) -> DataOptions:
    chosen = {
        "directory": root,
        "beacon_port": free_port(udp=True),
        "participant_port": 0,
        "group": "",
        "broadcast": False,
        **more,
    }
    return DataOptions(**chosen)


@asynccontextmanager
async def running(chosen: DataOptions, patience_s: float = 30.0) -> AsyncIterator[Participant]:
    async with asyncio.timeout(patience_s), Participant(chosen, service=True) as participant:
        yield participant


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def publisher(chosen: DataOptions, topic: str = "a") -> PublisherLink:
    return PublisherLink(
        chosen,
        topic,
        Process(),
        on_subscriber=lambda told: None,
        on_subscriber_lost=lambda id: None,
        on_failed=lambda error: None,
    )


def subscriber(chosen: DataOptions, topic: str = "a") -> SubscriberLink:
    return SubscriberLink(
        chosen,
        topic,
        Process(),
        on_publisher=lambda told: None,
        on_publisher_lost=lambda id: None,
        on_failed=lambda error: None,
    )


def nothing(monkeypatch: pytest.MonkeyPatch, participant: Participant) -> None:
    pass


def newer(monkeypatch: pytest.MonkeyPatch, participant: Participant) -> None:
    monkeypatch.setattr(participant_core, "VERSION", 2)


def full(monkeypatch: pytest.MonkeyPatch, participant: Participant) -> None:
    monkeypatch.setattr(matching, "MAX_ENDPOINTS", 0)


def other_cookie(monkeypatch: pytest.MonkeyPatch, participant: Participant) -> None:
    participant.home.publish(participant.port, b"another one")


@pytest.mark.parametrize(
    ("prepare", "change", "topic", "error"),
    [
        (newer, {}, "a", WrongVersion),
        (nothing, {"domain": "lab"}, "a", WrongDomain),
        (nothing, {}, "a//b", TopicRefused),
        (other_cookie, {}, "a", NotAuthorised),
        (full, {}, "a", TooManyEndpoints),
    ],
)
def test_each_reason_to_refuse_is_an_error_of_its_own(
    shm_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[pytest.MonkeyPatch, Participant], None],
    change: dict[str, str],
    topic: str,
    error: type[InitFailed],
) -> None:
    async def test() -> None:
        async with running(options(shm_dir / "m")) as participant:
            prepare(monkeypatch, participant)
            for make in (publisher, subscriber):
                link = make(options(shm_dir / "m", **change), topic)
                with pytest.raises(error) as raised:
                    await link.open()
                assert raised.value.advice in str(raised.value)

    run(test)


def test_a_refusal_by_a_restarted_participant_is_told_later(shm_dir: Path) -> None:
    chosen = options(shm_dir / "m")
    failed: asyncio.Queue[Exception] = asyncio.Queue()

    async def test() -> None:
        link = publisher(chosen)
        link._on_failed = failed.put_nowait
        async with running(chosen):
            await link.open()
        async with running(options(shm_dir / "m", domain="lab")):
            assert isinstance(await failed.get(), WrongDomain)
        await link.close()

    run(test)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_s_process_finds_no_cookie_and_gets_in_without_none(shm_dir: Path) -> None:
    chosen = options(shm_dir / "m")

    async def test() -> None:
        async with running(chosen) as participant:
            child = os.fork()
            if not child:
                try:
                    os._exit(intruder(participant.port, chosen))
                finally:
                    os._exit(1)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 42

    run(test)


def intruder(port: int, chosen: DataOptions) -> int:
    """What the other user's process does; 42 when it got nowhere."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    home = Home(chosen.meeting())
    if home.address() is not None:
        return 1
    if os.access(home.path, os.R_OK):
        return 2
    with socket.socket() as connection:
        connection.settimeout(10)
        connection.connect(("127.0.0.1", port))
        connection.sendall(wire.encode(InitLook(Credentials(bytes(32), "default"))))
        data = connection.recv(1 << 16)
        (answer,) = wire.to_onlooker().feed(data)
        refused = isinstance(answer, LookInitFailed) and answer.reason is Reason.COOKIE
        return 42 if refused and connection.recv(1) == b"" else 3


def test_a_directory_has_one_participant(shm_dir: Path) -> None:
    async def test() -> None:
        async with running(options(shm_dir / "m")) as first:
            with pytest.raises(OwnerAlive):
                await Participant(options(shm_dir / "m")).start()
            assert find(first.options) is not None

    run(test)


def test_one_that_leaves_takes_its_files_with_it(shm_dir: Path) -> None:
    async def test() -> None:
        async with running(options(shm_dir / "m")):
            assert (shm_dir / "m" / ".participant" / "address").stat().st_mode & 0o777 == 0o600
            assert (shm_dir / "m" / ".participant").stat().st_mode & 0o777 == 0o700
        assert list(shm_dir.iterdir()) == []

    run(test)


@pytest.mark.parametrize("what", ["participant_port", "link_port"])
def test_a_port_that_is_taken_is_named_with_the_variable_to_set(shm_dir: Path, what: str) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            chosen = options(shm_dir / "m", **{what: taken.getsockname()[1]})
            with pytest.raises(PortTaken, match=rf"taken: .* ECHOMESH_{what.upper()}"):
                await Participant(chosen).start()
        assert list(shm_dir.iterdir()) == []

    run(test)


def test_two_participants_of_one_machine_share_the_usual_ports(shm_dir: Path) -> None:
    async def test() -> None:
        usual = {"participant_port": PARTICIPANT_PORT, "beacon_port": free_port(udp=True)}
        async with (
            running(options(shm_dir / "one", domain="one", **usual)) as one,
            running(options(shm_dir / "two", domain="two", **usual)) as two,
        ):
            assert one.port != two.port
            for participant in (one, two):
                seen = await asyncio.to_thread(look, participant.options)
                assert seen.participants[0].hello == participant.core.hello

    run(test)


def test_participants_of_one_machine_with_static_peers_find_each_other(shm_dir: Path) -> None:
    ports = [free_port(udp=True), free_port(udp=True)]

    async def test() -> None:
        one = options(shm_dir / "1", beacon_port=ports[0], peers=(f"localhost:{ports[1]}",), beacon_s=0.05)
        two = options(shm_dir / "2", beacon_port=ports[1], peers=(f"127.0.0.1:{ports[0]}",), beacon_s=0.05)
        async with running(one), running(two):
            publishing, subscribing = publisher(one), subscriber(two)
            await publishing.open()
            await subscribing.open()
            await until(lambda: set(publishing.matched) == {subscribing.id})
            await subscribing.close()
            await until(lambda: not publishing.matched)
            await publishing.close()

    run(test)


def test_with_no_participant_there_is_none_to_look_at(shm_dir: Path) -> None:
    with pytest.raises(NoParticipant, match="no participant runs"):
        look(options(shm_dir / "m"))
    assert list(shm_dir.iterdir()) == []


def test_one_that_can_not_be_started_says_why(shm_dir: Path) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            link = publisher(options(shm_dir / "m", participant_port=taken.getsockname()[1]))
            with pytest.raises(NoParticipant, match="ECHOMESH_PARTICIPANT_PORT"):
                await link.open()

    run(test)


def test_who_does_not_read_is_dropped_and_the_others_go_on(shm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echomesh.data.participant.MAX_UNSENT", 1 << 16)
    chosen = options(shm_dir / "m")

    async def test() -> None:
        async with running(chosen) as participant:
            seen = wire.encode(InitLook(Credentials(participant.core.identity.cookie, "default")))
            with socket.create_connection(("127.0.0.1", participant.port)) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.sendall(seen[:4])
                await asyncio.sleep(0.05)
                (connection,) = participant._connections.values()
                assert connection.number is not None
                while participant._connections:
                    participant._send(connection.number, struct.pack(">I", 1 << 16) + bytes(1 << 16))
                    await asyncio.sleep(0)
            assert participant.core.counters["slow connections"] == 1
            await asyncio.to_thread(look, chosen)

    run(test)
