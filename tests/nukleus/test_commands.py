"""The bytes of commands and responses, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadFrame, UsageError
from echomesh.nukleus import commands
from echomesh.nukleus.commands import COMMANDS, RESPONSES, Message, correlation_of, decode, encode

CORRELATION = 0x1122334455667788
C = "8877665544332211"
ECHO = "046563686f"

# As the seed lists them: code, fields. Strings are a length byte and UTF-8, longs are little endian.
SEED: list[tuple[int, Message, str]] = [
    (0x40000000, commands.Refused(CORRELATION), C),
    (0x00000001, commands.Capture(CORRELATION, "echo"), C + ECHO),
    (0x40000001, commands.Captured(CORRELATION), C),
    (0x00000002, commands.Uncapture(CORRELATION, "echo"), C + ECHO),
    (0x40000002, commands.Uncaptured(CORRELATION), C),
    (0x00000003, commands.Route(CORRELATION, "echo"), C + ECHO),
    (0x40000003, commands.Routed(CORRELATION), C),
    (0x00000004, commands.Unroute(CORRELATION, "echo"), C + ECHO),
    (0x40000004, commands.Unrouted(CORRELATION), C),
    (0x00000011, commands.Bind(CORRELATION, "echo", -2), C + ECHO + "feffffffffffffff"),
    (0x40000011, commands.Bound(CORRELATION, 2), C + "0200000000000000"),
    (0x00000012, commands.Unbind(CORRELATION, 2), C + "0200000000000000"),
    (0x40000012, commands.Unbound(CORRELATION), C),
    (0x00000013, commands.Prepare(CORRELATION, "echo", 258), C + ECHO + "0201000000000000"),
    (0x40000013, commands.Prepared(CORRELATION, 1), C + "0100000000000000"),
    (0x00000014, commands.Unprepare(CORRELATION, 1), C + "0100000000000000"),
    (0x40000014, commands.Unprepared(CORRELATION), C),
    (0x00000021, commands.Connect(CORRELATION, 1), C + "0100000000000000"),
    (0x40000021, commands.Connected(CORRELATION, 3), C + "0300000000000000"),
]
IDS = [message.title for _, message, _ in SEED]
everything = pytest.mark.parametrize(("code", "message", "body"), SEED, ids=IDS)


def known(code: int) -> dict[int, type[Message]]:
    return RESPONSES if code >= 0x40000000 else COMMANDS


def test_every_message_of_the_seed_is_known_and_nothing_else() -> None:
    assert sorted([*COMMANDS, *RESPONSES]) == sorted(code for code, _, _ in SEED)
    assert not set(COMMANDS) & set(RESPONSES)


@everything
def test_a_message_has_the_seeds_code_and_bytes(code: int, message: Message, body: str) -> None:
    assert message.code == code
    assert encode(message) == bytes.fromhex(body)


@everything
def test_the_bytes_become_the_message_again(code: int, message: Message, body: str) -> None:
    assert decode(code, bytes.fromhex(body), known(code)) == message


@everything
def test_every_truncation_is_refused(code: int, message: Message, body: str) -> None:
    whole = bytes.fromhex(body)
    for length in range(len(whole)):
        with pytest.raises(BadFrame, match=message.title):
            decode(code, whole[:length], known(code))


@everything
def test_extra_bytes_are_refused(code: int, message: Message, body: str) -> None:
    for extra in (b"\0", b"\0" * 8, bytes(300)):
        with pytest.raises(BadFrame, match="too many"):
            decode(code, bytes.fromhex(body) + extra, known(code))


@pytest.mark.parametrize("code", [0x1, 0x2, 0x3, 0x4])
@pytest.mark.parametrize("name", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_a_name_that_is_not_utf8_is_refused(code: int, name: bytes) -> None:
    with pytest.raises(BadFrame, match="UTF-8"):
        decode(code, bytes(8) + bytes([len(name)]) + name, COMMANDS)


@pytest.mark.parametrize("code", [0x1, 0x2, 0x3, 0x4, 0x11, 0x13])
def test_an_empty_name_is_refused(code: int) -> None:
    with pytest.raises(BadFrame):
        decode(code, bytes(8) + b"\0", COMMANDS)
    with pytest.raises(BadFrame):
        decode(code, bytes(8) + b"\0" + bytes(8), COMMANDS)


def test_the_longest_name_has_255_bytes() -> None:
    body = encode(commands.Capture(0, "n" * 255))
    assert body == bytes(8) + b"\xff" + b"n" * 255
    assert decode(1, body, COMMANDS) == commands.Capture(0, "n" * 255)
    assert encode(commands.Capture(0, "é" * 127 + "e"))[8] == 255


@pytest.mark.parametrize("name", ["", "n" * 256, "é" * 128])
def test_a_name_that_can_not_be_sent_is_refused_before_it_is_written(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 255"):
        encode(commands.Route(0, name))


@pytest.mark.parametrize("reference", [1 << 63, -(1 << 63) - 1])
def test_a_number_beyond_64_bits_is_refused(reference: int) -> None:
    with pytest.raises(UsageError, match="64-bit"):
        encode(commands.Unbind(0, reference))


@pytest.mark.parametrize("code", [-1, 0, 0x5, 0x10, 0x15, 0x20, 0x22, 0x40000000, 0x40000001, 0x7FFFFFFF])
def test_an_unknown_code_is_refused(code: int) -> None:
    with pytest.raises(BadFrame, match="code"):
        decode(code, bytes(16), COMMANDS)


def test_a_correlation_id_is_the_first_long_if_there_is_one() -> None:
    assert correlation_of(bytes.fromhex(C)) == CORRELATION
    assert correlation_of(bytes.fromhex(C) + b"rest") == CORRELATION
    for length in range(8):
        assert correlation_of(b"\1" * length) is None


def test_a_message_says_what_it_is() -> None:
    assert str(commands.Bind(7, "echo", 3)) == "BIND nukleus='echo' reference=3"
    assert str(commands.Captured(7)) == "CAPTURED"


longs = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(min_size=1, max_size=60).filter(lambda text: _fits(text))


def _fits(text: str) -> bool:
    try:
        return 1 <= len(text.encode()) <= 255
    except UnicodeEncodeError:
        return False


@given(kind=st.sampled_from(sorted(COMMANDS)), correlation=longs, name=names, reference=longs)
def test_any_command_comes_back_as_it_was(kind: int, correlation: int, name: str, reference: int) -> None:
    made = COMMANDS[kind]
    message: Message
    if issubclass(made, commands.Aimed):
        message = made(correlation, name, reference)
    elif issubclass(made, commands.Named):
        message = made(correlation, name)
    else:
        assert issubclass(made, commands.Referring)
        message = made(correlation, reference)
    assert decode(kind, encode(message), COMMANDS) == message


@given(
    code=st.integers(-(1 << 31), (1 << 31) - 1) | st.sampled_from(sorted(COMMANDS)),
    body=st.binary(max_size=300),
)
def test_any_bytes_are_a_message_or_a_bad_frame(code: int, body: bytes) -> None:
    try:
        message = decode(code, body, COMMANDS)
    except BadFrame:
        return
    assert encode(message) == body
