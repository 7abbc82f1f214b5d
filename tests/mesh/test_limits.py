"""Rates and guessers, on a clock that the tests turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.mesh.limits import Failures, Rate


class TestRate:
    def test_a_second_s_worth_at_once_and_then_evenly(self) -> None:
        rate = Rate(10)
        assert [rate.take(5.0) for _ in range(10)] == [0.0] * 10
        assert rate.take(5.0) == pytest.approx(0.1)
        assert rate.take(5.05) == pytest.approx(0.05)
        assert rate.take(5.1) == 0.0
        assert rate.take(5.1) == pytest.approx(0.1)

    def test_less_than_one_a_second_is_one_now_and_then(self) -> None:
        rate = Rate(0.1)
        assert rate.take(0.0) == 0.0
        assert rate.take(0.0) == pytest.approx(10.0)
        assert rate.take(10.0) == 0.0

    def test_idle_time_saves_up_no_more_than_the_burst(self) -> None:
        rate = Rate(100, burst=3)
        assert [rate.take(1e6) == 0.0 for _ in range(5)] == [True, True, True, False, False]

    def test_a_batch_over_the_burst_goes_when_the_bucket_is_full_and_is_paid_for_afterwards(self) -> None:
        rate = Rate(10)
        assert rate.take(0.0, 50) == 0.0
        assert rate.take(0.0) == pytest.approx(4.1)
        assert rate.take(4.1) == 0.0
        assert rate.take(4.1, 50) == pytest.approx(1.0)

    def test_time_that_runs_backwards_gives_nothing(self) -> None:
        rate = Rate(1)
        assert rate.take(10.0) == 0.0
        assert rate.take(5.0) == pytest.approx(1.0)
        assert rate.take(10.5) == pytest.approx(0.5)

    @given(
        st.floats(0.01, 1e6),
        st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), max_size=40),
    )
    def test_never_more_than_burst_and_rate_allow_and_after_the_wait_it_is_allowed(
        self, per_second: float, steps: list[tuple[float, int]]
    ) -> None:
        rate = Rate(per_second)
        now, taken = 0.0, 0
        for pause, tries in steps:
            now += pause
            for _ in range(tries):
                wait = rate.take(now)
                if wait:
                    assert rate.take(now) == wait
                    now += wait
                    assert rate.take(now) == 0.0
                taken += 1
            assert taken <= rate.burst + now * per_second * (1 + 1e-9) + 1e-3


class TestFailures:
    def test_five_are_free_and_then_each_pause_is_twice_as_long_up_to_a_minute(self) -> None:
        failures = Failures()
        now = 0.0
        for _ in range(4):
            failures.failed("192.0.2.1", now, "shop")
            assert failures.wait("192.0.2.1", now, "shop") == 0.0
        pauses = []
        for _ in range(9):
            failures.failed("192.0.2.1", now, "shop")
            pauses.append(failures.wait("192.0.2.1", now, "shop"))
            now += pauses[-1]
            assert failures.wait("192.0.2.1", now, "shop") == 0.0
        # What time forgives meanwhile makes them a little shorter.
        assert pauses[:4] == pytest.approx([1, 2, 4, 8], rel=0.1)
        assert pauses[-1] == 60.0
        assert pauses == sorted(pauses)

    def test_a_guesser_gets_one_try_a_minute_for_ever(self) -> None:
        failures = Failures()
        now, tries = 0.0, 0
        while now < 86_400:
            now += failures.wait("192.0.2.1", now, "shop")
            failures.failed("192.0.2.1", now, "shop")
            tries += 1
        assert tries < 86_400 / 60 + 20

    def test_others_are_not_concerned(self) -> None:
        failures = Failures()
        for _ in range(20):
            failures.failed("192.0.2.1", 0.0, "shop")
        assert failures.wait("192.0.2.1", 0.0, "shop") > 0
        assert failures.wait("192.0.2.2", 0.0, "shop") == 0.0
        assert failures.wait("192.0.2.1", 0.0, "gate") == 0.0

    def test_who_tries_every_name_is_shut_out_by_address(self) -> None:
        failures = Failures()
        for number in range(100):
            assert failures.wait("192.0.2.1", 0.0, f"client-{number}") == 0.0
            failures.failed("192.0.2.1", 0.0, f"client-{number}")
        assert failures.wait("192.0.2.1", 0.0, "another") == 1.0

    def test_programs_with_an_old_password_do_not_shut_out_their_neighbours(self) -> None:
        failures = Failures()
        now = 0.0
        while now < 86_400:
            for number in range(8):
                if not failures.wait("192.0.2.1", now, f"old-{number}"):
                    failures.failed("192.0.2.1", now, f"old-{number}")
            assert failures.wait("192.0.2.1", now, "good") == 0.0
            now += 10.0

    def test_the_right_password_forgets_the_wrong_ones_of_that_client_alone(self) -> None:
        failures = Failures()
        for number in range(100):
            failures.failed("192.0.2.1", 0.0, "shop" if number < 10 else "gate")
        failures.succeeded("192.0.2.1", "shop")
        assert failures.wait("192.0.2.1", 1.0, "shop") == 0.0
        assert failures.wait("192.0.2.1", 1.0, "gate") > 0
        assert failures.wait("192.0.2.1", 0.5, "shop") == 0.5

    def test_all_is_forgiven_in_the_end(self) -> None:
        failures = Failures()
        for _ in range(1000):
            failures.failed("192.0.2.1", 0.0, "shop")
        failures.failed("192.0.2.1", 7200.0, "shop")
        assert failures.wait("192.0.2.1", 7200.0, "shop") == 0.0

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("2001:db8::1", "2001:db8::ffff:1", True),
            ("2001:db8::1", "2001:db8:0:1::1", False),
            ("::ffff:192.0.2.1", "192.0.2.1", True),
            ("192.0.2.1", "192.0.2.2", False),
            ("unix", "unix", True),
            ("", "unix", False),
        ],
    )
    def test_an_address_is_what_one_person_has(self, one: str, other: str, same: bool) -> None:
        failures = Failures()
        for _ in range(10):
            failures.failed(one, 0.0)
        assert (failures.wait(other, 0.0) > 0) is same

    def test_memory_is_bounded_and_the_oldest_is_forgotten_first(self) -> None:
        failures = Failures()
        for _ in range(10):
            failures.failed("192.0.2.1", 0.0, "x" * 1000)
        for number in range(Failures.MOST + 10):
            failures.failed(f"10.0.{number // 256}.{number % 256}", 1.0, "x" * 1000)
        assert len(failures) == 2 * Failures.MOST
        assert failures.wait("192.0.2.1", 1.0, "x" * 1000) == 0.0
