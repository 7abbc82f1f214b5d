from __future__ import annotations

import pytest

from bench.native.checker import END, HELLO, TAIL_STAMP_FROM, Checker, Stamper, stamp

SIZES = [8, 64, 1024, TAIL_STAMP_FROM, 65536]


def message(sequence: int, size: int = 64) -> bytes:
    body = bytearray(size)
    stamp(body, sequence)
    return bytes(body)


def counts(checker: Checker) -> tuple[int, int, int]:
    return checker.good, checker.bad, checker.lost


@pytest.mark.parametrize("size", SIZES)
def test_messages_in_order_are_good(size: int) -> None:
    checker = Checker(size)
    for sequence in range(5):
        assert not checker.check(message(sequence, size))
    assert counts(checker) == (5, 0, 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_checked_alike(
    kind: type[bytes] | type[bytearray] | type[memoryview],
) -> None:
    checker = Checker(64)
    checker.check(kind(message(0)))
    checker.check(kind(message(2)))
    checker.check(kind(message(3, 63)))
    assert counts(checker) == (2, 1, 1)


def test_a_lost_message_is_found() -> None:
    checker = Checker(64)
    for sequence in (0, 1, 4, 5):
        checker.check(message(sequence))
    assert counts(checker) == (4, 0, 2)


def test_a_torn_message_is_found() -> None:
    checker = Checker(TAIL_STAMP_FROM)
    torn = bytearray(message(0, TAIL_STAMP_FROM))
    torn[-8:] = message(1)[:8]
    checker.check(torn)
    assert counts(checker) == (0, 1, 0)


@pytest.mark.parametrize("size", [0, 7, 63, 65])
def test_a_short_or_a_long_message_is_found(size: int) -> None:
    checker = Checker(64)
    checker.check(message(0)[:size].ljust(size, b"\0"))
    assert counts(checker) == (0, 1, 0)


def test_a_repeated_message_is_found() -> None:
    checker = Checker(64)
    for sequence in (0, 1, 1, 0, 2):
        checker.check(message(sequence))
    assert counts(checker) == (3, 2, 0)


def test_a_message_that_comes_late_counts_as_lost_and_as_bad() -> None:
    checker = Checker(64)
    for sequence in (0, 2, 1, 3):
        checker.check(message(sequence))
    assert counts(checker) == (3, 1, 1)


def test_greetings_and_the_end_are_no_messages() -> None:
    heard: list[str] = []
    checker = Checker(64, on_hello=lambda: heard.append("hello"), on_end=lambda: heard.append("end"))
    assert [checker.check(message(mark)) for mark in (HELLO, HELLO, 0, END, END)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert heard == ["hello", "end"]
    assert checker.ended
    assert checker.seconds > 0
    assert counts(checker) == (1, 0, 0)


def test_a_size_without_room_for_a_stamp_is_refused() -> None:
    with pytest.raises(ValueError, match="no stamp"):
        Checker(7)
    with pytest.raises(ValueError, match="no stamp"):
        Stamper(bytearray(7))
    with pytest.raises(ValueError, match="no stamp"):
        stamp(bytearray(7), 0)


@pytest.mark.parametrize("size", SIZES)
def test_stamped_messages_are_those_that_the_checker_expects(size: int) -> None:
    checker = Checker(size)
    stamps = Stamper(bytearray(size), count=100)
    for body in stamps:
        checker.check(body)
    assert stamps.sent == 100
    assert counts(checker) == (100, 0, 0)


def test_stamps_end_when_the_time_is_over() -> None:
    assert sum(1 for _ in Stamper(bytearray(64), seconds=0.01)) > 0


def test_a_batch_is_stamped_with_the_next_numbers() -> None:
    stamps = Stamper(bytearray(64), count=6)
    bodies = [bytearray(64) for _ in range(3)]
    checker = Checker(64)
    while stamps.fill(bodies):
        for body in bodies:
            checker.check(body)
    assert counts(checker) == (6, 0, 0)


def test_laps_are_the_times_between_messages() -> None:
    stamps = Stamper(bytearray(64), count=10, laps=True)
    assert sum(1 for _ in stamps) == 10
    assert len(stamps.laps_ns()) == 10
    assert all(lap >= 0 for lap in stamps.laps_ns())
