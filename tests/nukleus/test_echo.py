"""The Echo nukleus as a foreign peer sees it: every command, response and event byte for byte."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.nukleus import Nukleus
from tests.nukleus.foreign import ForeignController, ForeignPeer, ForeignRing, Record
from tests.nukleus.helpers import echo_in, files_in

JAVA = "046a617661"
RESET, BEGIN, DATA, END = 0, 1, 2, 3


def long(value: int) -> bytes:
    return struct.pack("<q", value)


class Java:
    """A foreign peer named java, beside an Echo nukleus that runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.control = ForeignController(root / "echo" / "control")
        self.peer = ForeignPeer(root, "java")
        self._correlation = 0x0A00

    def call(self, code: int, arguments: str = "") -> tuple[str, str]:
        """Sends a command with a fresh correlation id; the answer's code, and its body behind that id."""
        self._correlation += 1
        correlation = long(self._correlation)
        kind, body = self.control.call(code, correlation + bytes.fromhex(arguments))
        assert body[:8] == correlation
        return f"{kind:08x}", body[8:].hex()

    def link(self) -> tuple[ForeignRing, ForeignRing]:
        """The rings from and to echo."""
        inbound = self.peer.capture("echo")
        assert self.call(0x01, JAVA) == ("40000001", "")
        assert self.call(0x03, JAVA) == ("40000003", "")
        return inbound, self.peer.route("echo")

    def bind(self) -> int:
        kind, reference = self.call(0x11, JAVA + "0000000000000000")
        assert kind == "40000011"
        return int(struct.unpack("<q", bytes.fromhex(reference))[0])


@pytest.fixture(params=["run", "serve"])
def echo(request: pytest.FixtureRequest, shm_dir: Path) -> Iterator[Nukleus]:
    with echo_in(shm_dir / "mesh", serve=request.param == "serve") as nukleus:
        yield nukleus


@pytest.fixture
def java(echo: Nukleus) -> Java:
    return Java(echo.directory.root)


def test_every_command_of_the_seed_is_answered_as_the_seed_says(java: Java) -> None:
    java.peer.capture("echo")
    assert java.call(0x01, JAVA) == ("40000001", "")
    assert (java.root / "echo" / "streams" / "java").stat().st_size == (1 << 16) + 768
    assert java.call(0x03, JAVA) == ("40000003", "")
    assert java.call(0x11, JAVA + "efcdab8967452301") == ("40000011", "0200000000000000")
    assert java.call(0x11, JAVA + "0000000000000000") == ("40000011", "0400000000000000")
    assert java.call(0x13, JAVA + "0900000000000000") == ("40000013", "0100000000000000")
    assert java.call(0x13, JAVA + "0900000000000000") == ("40000013", "0300000000000000")
    assert java.call(0x21, "0100000000000000") == ("40000021", "0100000000000000")
    assert java.call(0x14, "0100000000000000") == ("40000014", "")
    assert java.call(0x12, "0200000000000000") == ("40000012", "")
    assert java.call(0x04, JAVA) == ("40000004", "")
    assert java.call(0x02, JAVA) == ("40000002", "")


def test_each_case_of_the_table_is_answered_with_error(java: Java) -> None:
    error = ("40000000", "")
    assert java.call(0x02, JAVA) == error, "not captured"
    assert java.call(0x04, JAVA) == error, "not routed"
    assert java.call(0x03, JAVA) == error, "the file is missing"
    (java.root / "java" / "streams" / "echo").write_bytes(b"no ring")
    assert java.call(0x03, JAVA) == error, "the file is not a ring"
    (java.root / "java" / "streams" / "echo").unlink()
    for code in (0x11, 0x13):
        assert java.call(code, JAVA + "0000000000000000") == error, "neither captured nor routed"
    assert java.call(0x01, JAVA) == ("40000001", "")
    assert java.call(0x01, JAVA) == error, "captured already"
    for code in (0x11, 0x13):
        assert java.call(code, JAVA + "0000000000000000") == error, "not routed"
    java.peer.capture("echo")
    assert java.call(0x03, JAVA) == ("40000003", "")
    assert java.call(0x03, JAVA) == error, "routed already"
    assert java.call(0x02, JAVA) == ("40000002", "")
    for code in (0x11, 0x13):
        assert java.call(code, JAVA + "0000000000000000") == error, "not captured"
    assert java.call(0x01, JAVA) == ("40000001", "")
    assert java.bind() == 2
    assert java.call(0x13, JAVA + "0000000000000000") == ("40000013", "0100000000000000")
    assert java.call(0x12, "0100000000000000") == error, "a reference of the other kind"
    assert java.call(0x14, "0200000000000000") == error, "a reference of the other kind"
    assert java.call(0x12, "0400000000000000") == error, "an unknown reference"
    assert java.call(0x14, "0300000000000000") == error, "an unknown reference"
    assert java.call(0x21, "0200000000000000") == error, "a bind reference connects nothing"
    assert java.call(0x12, "0200000000000000") == ("40000012", "")
    assert java.call(0x12, "0200000000000000") == error, "no longer a reference"


def test_a_file_that_can_not_be_made_is_an_error_and_leaves_nothing(java: Java) -> None:
    (java.root / "echo" / "streams" / "java").mkdir()
    assert java.call(0x01, JAVA) == ("40000000", "")
    assert files_in(java.root / "echo" / "streams") == ["java"]
    (java.root / "echo" / "streams" / "java").rmdir()
    assert java.call(0x01, JAVA) == ("40000001", "")


def test_a_plain_file_where_a_nukleus_should_be_is_no_trouble(java: Java) -> None:
    (java.root / "note").write_bytes(b"hello")
    assert java.call(0x01, "046e6f7465") == ("40000001", "")
    assert java.call(0x03, "046e6f7465") == ("40000000", "")
    assert java.call(0x02, "046e6f7465") == ("40000002", "")


MALFORMED = [
    (0x01, JAVA),
    (0x02, JAVA),
    (0x03, JAVA),
    (0x04, JAVA),
    (0x11, JAVA + "00" * 8),
    (0x12, "02" + "00" * 7),
    (0x13, JAVA + "00" * 8),
    (0x14, "01" + "00" * 7),
    (0x21, "01" + "00" * 7),
]


@pytest.mark.parametrize(("code", "arguments"), MALFORMED)
def test_every_truncation_and_extra_bytes_are_answered_with_error(java: Java, code: int, arguments: str) -> None:
    for length in range(0, len(arguments), 2):
        assert java.call(code, arguments[:length]) == ("40000000", "")
    for extra in ("00", "ff" * 8, "00" * 200):
        assert java.call(code, arguments + extra) == ("40000000", "")
    assert files_in(java.root / "echo" / "streams") == []


@pytest.mark.parametrize(
    "name",
    [
        b"../x",
        b"..",
        b".",
        b"/etc/passwd",
        b"a/b",
        b".hidden",
        b"a\0b",
        b"a b",
        b"\xff\xfe",
        "é".encode(),
        b"",
    ],
)
def test_a_name_that_is_no_name_is_answered_with_error_and_touches_no_file(java: Java, name: bytes) -> None:
    before = files_in(java.root.parent)
    argument = bytes([len(name)]).hex() + name.hex()
    for code in (0x01, 0x02, 0x03, 0x04):
        assert java.call(code, argument) == ("40000000", "")
    for code in (0x11, 0x13):
        assert java.call(code, argument + "00" * 8) == ("40000000", "")
    assert files_in(java.root.parent) == before


def test_a_name_of_255_bytes_is_a_name(java: Java) -> None:
    name = "ff" + "6e" * 255
    assert java.call(0x01, name) == ("40000001", "")
    assert files_in(java.root / "echo" / "streams") == ["n" * 255]
    assert java.call(0x03, name) == ("40000000", "")
    assert java.call(0x02, name) == ("40000002", "")


@pytest.mark.parametrize("code", [0, 0x05, 0x10, 0x15, 0x22, 0x40000000, 0x40000001, 0x7FFFFFFF])
def test_an_unknown_command_is_answered_with_error(java: Java, code: int) -> None:
    assert java.call(code) == ("40000000", "")
    assert java.call(code, JAVA) == ("40000000", "")


def test_without_a_readable_correlation_there_is_no_answer_but_a_count(java: Java) -> None:
    for length in range(8):
        receiver = java.control.send(0x01, bytes(length))
        # The next command is answered, so that the one before would have been.
        assert java.call(0x02, JAVA) == ("40000000", "")
        kind, body = receiver.receive() or (0, b"")
        assert (kind, len(body), body[1]) == (0x40000000, 8, 0x0A)
        assert receiver.receive() is None
    assert java.control.counters()["commands without correlation"] == 8


def test_streams_are_echoed_byte_for_byte(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    assert outbound.write(BEGIN, long(1) + long(reference))
    assert inbound.await_record() == [(BEGIN, long(2) + long(1))]
    payloads = [b"hello", b"", bytes(range(256)) * 31, b"\0" * 8000, b"end"]
    for payload in payloads:
        assert outbound.write(DATA, long(1) + payload)
        assert inbound.await_record() == [(DATA, long(2) + payload)]
    assert outbound.write(END, long(1))
    assert inbound.await_record() == [(END, long(2))]
    assert outbound.write(DATA, long(1) + b"late")
    assert inbound.await_record() == [(RESET, long(1))]


def test_a_stream_that_echo_initiates_is_echoed_once_the_peer_replies(java: Java) -> None:
    inbound, outbound = java.link()
    assert java.call(0x13, JAVA + "4d01000000000000") == ("40000013", "0100000000000000")
    assert java.call(0x21, "0100000000000000") == ("40000021", "0100000000000000")
    assert inbound.await_record() == [(BEGIN, long(1) + long(0x014D))]
    outbound.write(BEGIN, long(2) + long(1))
    outbound.write(DATA, long(2) + b"ball")
    outbound.write(DATA, long(2))
    outbound.write(END, long(2))
    assert inbound.await_record(3) == [(DATA, long(1) + b"ball"), (DATA, long(1)), (END, long(1))]


def test_many_streams_and_wraps_of_an_unmarked_ring_arrive_whole_and_in_order(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    seen: list[Record] = []
    for stream in (1, 3, 5):
        outbound.write(BEGIN, long(stream) + long(reference))
    seen += inbound.await_record(3)
    back = {int(struct.unpack_from("<q", body, 8)[0]): body[:8] for _, body in seen}
    expected: dict[int, list[bytes]] = {1: [], 3: [], 5: []}
    got: dict[bytes, list[bytes]] = {way: [] for way in back.values()}
    sent = 0
    while sent < 900 or sum(map(len, got.values())) < sent:
        stream = (1, 3, 5)[sent % 3]
        payload = long(sent) + bytes(sent % 997)
        if sent < 900 and outbound.write(DATA, long(stream) + payload):
            expected[stream].append(payload)
            sent += 1
        for kind, body in inbound.read():
            assert kind == DATA
            got[body[:8]].append(body[8:])
    for stream in (1, 3, 5):
        assert got[back[stream]] == expected[stream]
    assert outbound.tail > 4 * outbound.capacity, "the ring went around"


def test_an_unmarked_ring_is_polled_each_millisecond(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    outbound.write(BEGIN, long(1) + long(reference))
    inbound.await_record()
    times = []
    for _ in range(40):
        time.sleep(0.003)
        started = time.perf_counter()
        outbound.write(DATA, long(1) + b"ping")
        inbound.await_record()
        times.append(time.perf_counter() - started)
    # Four looks and the test's own, on a machine that does other things too; a tick would be 0.25 s.
    assert sorted(times)[len(times) // 2] < 0.02, times


def test_resets_of_both_directions_end_a_stream(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    for stream, back in ((1, 2), (3, 6)):
        outbound.write(BEGIN, long(stream) + long(reference))
        assert inbound.await_record() == [(BEGIN, long(back) + long(stream))]
    outbound.write(RESET, long(1))  # the sender gives up
    outbound.write(RESET, long(6))  # the receiver does
    for stream in (1, 3):
        outbound.write(DATA, long(stream) + b"late")
        assert inbound.await_record() == [(RESET, long(stream))]
    counters = java.control.counters()
    assert counters["resets received"] == 2
    assert counters["unknown streams"] == 2


def test_a_reset_is_never_answered_and_a_frame_too_short_harms_nobody(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    outbound.write(BEGIN, long(1) + long(reference))
    inbound.await_record()
    for stream in (0, 4, 77, -1):
        outbound.write(RESET, long(stream))
    for length in range(8):
        outbound.write(DATA, bytes(length))
    outbound.write(DATA, long(1) + b"alive")
    assert inbound.await_record() == [(DATA, long(2) + b"alive")]
    counters = java.control.counters()
    assert counters["violations"] == 8
    assert "damaged rings" not in counters


def test_bad_begins_are_reset(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    for body in (long(0) + long(reference), long(1), long(3) + b"\1", long(5) + long(reference) + b"x"):
        outbound.write(BEGIN, body)
        assert inbound.await_record() == [(RESET, body[:8])]
    for other in (0, 1, reference + 2, -reference):
        outbound.write(BEGIN, long(7) + long(other))
        assert inbound.await_record() == [(RESET, long(7))]
    outbound.write(BEGIN, long(2) + long(1))
    assert inbound.await_record() == [(RESET, long(2))]


def test_an_unbound_reference_takes_no_new_streams_but_keeps_the_old_ones(java: Java) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    outbound.write(BEGIN, long(1) + long(reference))
    inbound.await_record()
    assert java.call(0x12, long(reference).hex()) == ("40000012", "")
    outbound.write(BEGIN, long(3) + long(reference))
    assert inbound.await_record() == [(RESET, long(3))]
    outbound.write(DATA, long(1) + b"on")
    assert inbound.await_record() == [(DATA, long(2) + b"on")]


@pytest.mark.parametrize("code", [0x02, 0x04])
def test_uncapture_and_unroute_reset_live_streams_first(java: Java, code: int) -> None:
    inbound, outbound = java.link()
    reference = java.bind()
    outbound.write(BEGIN, long(1) + long(reference))
    inbound.await_record()
    assert java.call(code, JAVA)[0] == f"{0x40000000 + code:08x}"
    assert inbound.await_record() == [(RESET, long(2))]
    outbound.write(DATA, long(1) + b"to nobody")
    # Nothing that is written afterwards does any harm, and the other half can go too.
    assert java.call(0x06 - code, JAVA)[0] == f"{0x40000006 - code:08x}"
    assert inbound.read() == []


def test_attaching_a_controller_changes_nothing(java: Java) -> None:
    java.link()
    assert java.bind() == 2
    other = ForeignController(java.root / "echo" / "control")
    kind, body = other.call(0x11, long(5) + bytes.fromhex(JAVA) + long(0))
    assert (kind, body) == (0x40000011, long(5) + long(4))
    assert java.bind() == 6
