"""Matching against a model that looks at everybody each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from echomesh.data import matching as rules
from echomesh.data.matching import Matching, Member
from echomesh.data.messages import Endpoint
from echomesh.errors import BadTopic
from echomesh.topics import matches

OWNERS = [b"a" * 16, b"b" * 16]
TOPICS = ["a/b", "a/c", "d", "a/b/c"]
FILTERS = ["**", "a/*", "a/b", "*/b", "a/**", "d"]

steps = some.lists(
    some.tuples(some.booleans(), some.sampled_from(OWNERS), some.integers(0, 5), some.integers(0, 5), some.booleans())
)


@given(steps)
def test_every_change_tells_exactly_the_pairs_that_it_concerns(
    changes: list[tuple[bool, bytes, int, int, bool]],
) -> None:
    matching = Matching()
    publishers: dict[tuple[bytes, bytes], Member] = {}
    subscribers: dict[tuple[bytes, bytes], Member] = {}
    for insert, owner, number, choice, publishes in changes:
        id = bytes([number]) * 16
        having = publishers if publishes else subscribers
        topic = TOPICS[choice % len(TOPICS)] if publishes else FILTERS[choice]
        if insert:
            add = matching.insert_publisher if publishes else matching.insert_subscriber
            told = add(owner, Endpoint(id, topic))
            changed = None if (owner, id) in having else Member(owner, id, topic)
            if changed is not None:
                having[owner, id] = changed
        else:
            drop = matching.remove_publisher if publishes else matching.remove_subscriber
            told = drop(owner, id)
            changed = having.pop((owner, id), None)
        expected = set()
        if changed is not None:
            for other in (subscribers if publishes else publishers).values():
                pair = (changed, other) if publishes else (other, changed)
                if matches(pair[1].topic, pair[0].topic):
                    expected.add(pair)
        assert set(told) == expected
        assert len(told) == len(expected)
        assert matching.owners() == {member.owner for member in (*publishers.values(), *subscribers.values())}


def test_a_topic_has_one_spelling() -> None:
    matching = Matching()
    matching.insert_publisher(OWNERS[0], Endpoint(b"p" * 16, "/a/b"))
    ((publisher, _),) = matching.insert_subscriber(OWNERS[1], Endpoint(b"s" * 16, "a/b"))
    assert publisher.topic == "a/b"


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "x" * 256])
def test_what_is_no_topic_changes_nothing(topic: str) -> None:
    matching = Matching()
    with pytest.raises(BadTopic):
        matching.insert_publisher(OWNERS[0], Endpoint(b"p" * 16, topic))
    assert matching.owners() == set()


def test_a_participant_may_have_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ENDPOINTS", 2)
    matching = Matching()
    for number in range(2):
        assert matching.room(OWNERS[0])
        matching.insert_subscriber(OWNERS[0], Endpoint(bytes([number]) * 16, "**"))
    assert not matching.room(OWNERS[0])
    assert matching.room(OWNERS[1])
    matching.remove_subscriber(OWNERS[0], bytes(16))
    assert matching.room(OWNERS[0])
