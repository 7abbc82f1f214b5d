"""Subscriptions and cursors in the state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import DamagedError, UsageError
from echomesh.mesh.cursors import Cursors, Owner, Subscription, client_owner, group_owner
from tests.mesh.state_support import drop, fresh_directory, opened

SHOP = client_owner("shop")
NAMES = st.sampled_from(["a", "b", "group", "client", ""])
OWNERS = st.builds(client_owner, NAMES) | st.builds(group_owner, NAMES)
ENVIRONMENTS = st.sampled_from(["TST", "PRD"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["subscribe", "unsubscribe", "set_cursor", "acknowledge", "forget", "forget_owner", "restart"]),
        ENVIRONMENTS,
        OWNERS,
        NAMES,
        st.integers(0, 20),
    ),
    max_size=40,
)


@given(STEPS)
def test_filters_and_cursors_of_everybody_are_kept_apart_and_survive(
    steps: list[tuple[str, str, Owner, str, int]],
) -> None:
    with fresh_directory() as directory:
        state = opened(directory)
        cursors = Cursors(state)
        filters: dict[tuple[str, Owner, str], int] = {}
        places: dict[tuple[str, Owner, str], int] = {}
        for step, environment, owner, name, number in steps:
            key = (environment, owner, name)
            if step == "subscribe":
                cursors.subscribe(environment, owner, name, number)
                filters.setdefault(key, number)
            elif step == "unsubscribe":
                assert cursors.unsubscribe(environment, owner, name) == (filters.pop(key, None) is not None)
            elif step == "set_cursor":
                cursors.set_cursor(environment, owner, name, number)
                places[key] = number
            elif step == "acknowledge":
                assert cursors.acknowledge(environment, owner, name, number) == (number > places.get(key, -1))
                places[key] = max(number, places.get(key, -1))
            elif step == "forget":
                cursors.forget(environment, owner, name)
                places.pop(key, None)
            elif step == "forget_owner":
                cursors.forget_owner(environment, owner)
                filters = {other: value for other, value in filters.items() if other[:2] != (environment, owner)}
                places = {other: value for other, value in places.items() if other[:2] != (environment, owner)}
            else:
                assert state.flush()
                drop(state)
                state = opened(directory)
                cursors = Cursors(state)
            assert cursors.cursor(environment, owner, name) == places.get(key)
            assert cursors.filters_of(environment, owner) == sorted(
                filter for other, whose, filter in filters if (other, whose) == (environment, owner)
            )
            assert cursors.topics_of(environment, owner) == {
                topic: at for (other, whose, topic), at in places.items() if (other, whose) == (environment, owner)
            }
        assert sorted(cursors.subscriptions()) == sorted(Subscription(*key, begun) for key, begun in filters.items())
        assert {found.environment for found in cursors.subscriptions("PRD")} <= {"PRD"}
        drop(state)


def test_a_group_is_never_taken_for_a_client(tmp_path: Path) -> None:
    cursors = Cursors(opened(tmp_path))
    cursors.subscribe("TST", group_owner("shop"), "orders/**")
    cursors.set_cursor("TST", group_owner("shop"), "orders", 7)
    assert cursors.filters_of("TST", SHOP) == []
    assert cursors.cursor("TST", SHOP, "orders") is None
    assert cursors.cursor("TST", group_owner("shop"), "orders") == 7


def test_an_acknowledgement_never_goes_back_and_set_cursor_may(tmp_path: Path) -> None:
    cursors = Cursors(opened(tmp_path))
    assert cursors.acknowledge("TST", SHOP, "orders", 5)
    assert not cursors.acknowledge("TST", SHOP, "orders", 5)
    assert not cursors.acknowledge("TST", SHOP, "orders", 3)
    assert cursors.cursor("TST", SHOP, "orders") == 5
    cursors.set_cursor("TST", SHOP, "orders", 0)
    assert cursors.cursor("TST", SHOP, "orders") == 0
    for offset in (-1, 1 << 63):
        with pytest.raises(UsageError):
            cursors.set_cursor("TST", SHOP, "orders", offset)


def test_a_filter_that_is_kept_already_stays_as_old_as_it_is(tmp_path: Path) -> None:
    cursors = Cursors(opened(tmp_path))
    cursors.subscribe("TST", SHOP, "orders/**", 5)
    cursors.subscribe("TST", SHOP, "orders/**", 9)
    assert cursors.subscriptions() == [Subscription("TST", SHOP, "orders/**", 5)]


def test_a_value_of_another_kind_says_where_it_is(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.put(("cursor", "TST", *SHOP, "orders"), "seven")
    with pytest.raises(DamagedError, match="cursor/TST/client/shop/orders"):
        Cursors(state).cursor("TST", SHOP, "orders")
