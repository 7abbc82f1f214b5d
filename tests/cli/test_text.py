"""Numbers and bars."""

from __future__ import annotations

import pytest

from echomesh.cli.text import amount_text, bar, plural, rate_text, size_text, time_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (64, "64 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        (1 << 42, "4096 GiB"),
    ],
)
def test_sizes_are_binary(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_960, "100 kB"),
        (6_700_000, "6.7 MB"),
        (999_999_999, "1.0 GB"),
    ],
)
def test_amounts_are_decimal(count: float, text: str) -> None:
    assert amount_text(count) == text


@pytest.mark.parametrize(("rate", "text"), [(0, "0/s"), (950, "950/s"), (52_100, "52.1 k/s"), (3.2e6, "3.2 M/s")])
def test_rates(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0.00 µs"),
        (8_123, "8.12 µs"),
        (99_940, "99.9 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (2e9, "2.00 s"),
        (4e12, "4000 s"),
    ],
)
def test_durations_have_three_figures(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_a_bar_is_as_long_as_its_part() -> None:
    assert bar(0, 4) == "    "
    assert bar(1, 4) == "████"
    assert bar(0.5, 4) == "██  "
    assert bar(0.53, 4) == "██▏ "


def test_a_bar_never_shows_something_as_nothing_nor_more_than_all() -> None:
    assert bar(1e-9, 4) == "▏   "
    assert bar(7.0, 4) == "████"
    assert bar(-1.0, 4) == "    "


def test_one_thing_is_not_many() -> None:
    assert plural(1, "frame") == "1 frame"
    assert plural(2000, "frame") == "2,000 frames"
