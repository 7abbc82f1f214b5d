"""Commands, references and refusals, with no files."""

from __future__ import annotations

import struct

import pytest

from echomesh.errors import BusyError, StorageFull, UsageError
from echomesh.nukleus import commands
from echomesh.nukleus.commands import Message, Refused
from echomesh.nukleus.conductor import Conductor, Reference


class FakeFiles:
    """Remembers what it was asked for; refuses what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.refusal: Exception | None = None
        self.known = {"client"}
        self.next_stream = 1

    def _call(self, what: str, argument: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append((what, argument))

    def capture(self, source: str) -> None:
        self._call("capture", source)

    def uncapture(self, source: str) -> None:
        self._call("uncapture", source)

    def route(self, destination: str) -> None:
        self._call("route", destination)

    def unroute(self, destination: str) -> None:
        self._call("unroute", destination)

    def linked(self, nukleus: str) -> bool:
        return nukleus in self.known

    def connect(self, reference: int, destination: str, destination_reference: int) -> int:
        self._call("connect", (reference, destination, destination_reference))
        self.next_stream += 2
        return self.next_stream - 2


@pytest.fixture
def files() -> FakeFiles:
    return FakeFiles()


@pytest.fixture
def conductor(files: FakeFiles) -> Conductor:
    return Conductor(files)


@pytest.mark.parametrize(
    ("command", "call", "response"),
    [
        (commands.Capture(5, "client"), "capture", commands.Captured(5)),
        (commands.Uncapture(5, "client"), "uncapture", commands.Uncaptured(5)),
        (commands.Route(5, "client"), "route", commands.Routed(5)),
        (commands.Unroute(5, "client"), "unroute", commands.Unrouted(5)),
    ],
)
def test_a_named_command_does_one_thing_and_is_answered(
    conductor: Conductor, files: FakeFiles, command: Message, call: str, response: Message
) -> None:
    assert conductor.do(command) == response
    assert files.calls == [(call, "client")]


@pytest.mark.parametrize(
    "refusal",
    [BusyError("captured"), UsageError("not captured"), StorageFull(28, "full", "x"), PermissionError("no")],
)
@pytest.mark.parametrize("kind", [commands.Capture, commands.Uncapture, commands.Route, commands.Unroute])
def test_what_files_refuse_is_answered_with_error(
    conductor: Conductor, files: FakeFiles, kind: type[commands.Named], refusal: Exception
) -> None:
    files.refusal = refusal
    assert conductor.do(kind(9, "client")) == Refused(9)


def test_bind_references_are_even_and_prepare_references_odd(conductor: Conductor) -> None:
    assert [conductor.do(commands.Bind(i, "client", 0)) for i in range(3)] == [
        commands.Bound(0, 2),
        commands.Bound(1, 4),
        commands.Bound(2, 6),
    ]
    assert [conductor.do(commands.Prepare(i, "client", 2)) for i in range(3)] == [
        commands.Prepared(0, 1),
        commands.Prepared(1, 3),
        commands.Prepared(2, 5),
    ]


def test_references_are_never_used_again(conductor: Conductor) -> None:
    conductor.do(commands.Bind(0, "client", 0))
    conductor.do(commands.Prepare(0, "client", 0))
    assert conductor.do(commands.Unbind(0, 2)) == commands.Unbound(0)
    assert conductor.do(commands.Unprepare(0, 1)) == commands.Unprepared(0)
    assert conductor.references == {}
    assert conductor.do(commands.Bind(0, "client", 0)) == commands.Bound(0, 4)
    assert conductor.do(commands.Prepare(0, "client", 0)) == commands.Prepared(0, 3)


def test_a_refused_bind_uses_no_reference_up(conductor: Conductor) -> None:
    assert conductor.do(commands.Bind(1, "stranger", 0)) == Refused(1)
    assert conductor.do(commands.Bind(2, "client", 0)) == commands.Bound(2, 2)


@pytest.mark.parametrize("kind", [commands.Bind, commands.Prepare])
def test_only_one_that_is_captured_and_routed_can_be_bound_or_prepared(
    conductor: Conductor, kind: type[commands.Aimed]
) -> None:
    assert conductor.do(kind(7, "stranger", 1)) == Refused(7)
    assert conductor.references == {}


def test_the_source_reference_is_kept_and_not_checked(conductor: Conductor) -> None:
    conductor.do(commands.Bind(0, "client", -77))
    assert conductor.references == {2: Reference(commands.Bind, "client", -77)}


def test_a_reference_ends_once(conductor: Conductor) -> None:
    conductor.do(commands.Bind(0, "client", 0))
    conductor.do(commands.Unbind(0, 2))
    assert conductor.do(commands.Unbind(3, 2)) == Refused(3)


@pytest.mark.parametrize("reference", [0, -1, 3, 4, 1 << 62])
def test_an_unknown_reference_is_refused(conductor: Conductor, reference: int) -> None:
    conductor.do(commands.Bind(0, "client", 0))
    conductor.do(commands.Prepare(0, "client", 0))
    for kind in (commands.Unbind, commands.Unprepare, commands.Connect):
        assert conductor.do(kind(8, reference)) == Refused(8)


def test_a_reference_of_the_other_kind_is_refused_and_stays(conductor: Conductor) -> None:
    conductor.do(commands.Bind(0, "client", 0))
    conductor.do(commands.Prepare(0, "client", 0))
    assert conductor.do(commands.Unbind(1, 1)) == Refused(1)
    assert conductor.do(commands.Unprepare(2, 2)) == Refused(2)
    assert conductor.do(commands.Connect(3, 2)) == Refused(3)
    assert sorted(conductor.references) == [1, 2]


def test_connect_names_the_destination_and_its_reference(conductor: Conductor, files: FakeFiles) -> None:
    conductor.do(commands.Prepare(0, "client", 44))
    assert conductor.do(commands.Connect(6, 1)) == commands.Connected(6, 1)
    assert files.calls == [("connect", (1, "client", 44))]


def test_connect_is_refused_once_the_destination_is_no_longer_linked(conductor: Conductor, files: FakeFiles) -> None:
    conductor.do(commands.Prepare(0, "client", 44))
    files.known.clear()
    assert conductor.do(commands.Connect(6, 1)) == Refused(6)
    assert files.calls == []


def test_a_bind_reference_is_good_for_its_source_alone(conductor: Conductor) -> None:
    conductor.do(commands.Bind(0, "client", 0))
    conductor.do(commands.Prepare(0, "client", 0))
    assert conductor.bound("client", 2)
    assert not conductor.bound("other", 2)
    assert not conductor.bound("client", 1)
    assert not conductor.bound("client", 4)


def test_a_malformed_command_is_answered_with_error_when_its_correlation_can_be_read(
    conductor: Conductor, files: FakeFiles
) -> None:
    whole = struct.pack("<q", 99) + b"\x06client"
    for length in range(8, len(whole)):
        assert conductor.conduct(1, whole[:length]) == Refused(99)
    assert conductor.conduct(1, whole + b"x") == Refused(99)
    assert conductor.conduct(0x7777, whole) == Refused(99)
    assert files.calls == []


def test_a_command_with_no_correlation_is_not_answered(conductor: Conductor) -> None:
    for length in range(8):
        assert conductor.conduct(1, bytes(length)) is None
        assert conductor.conduct(0x7777, bytes(length)) is None
