from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bench import filters
from echomesh.errors import BadTopic, EchomeshError
from echomesh.topics import (
    MAX_PART_BYTES,
    MAX_TOPIC_BYTES,
    Matcher,
    _Node,
    covers,
    matches,
    parse_filter,
    parse_topic,
    quote_topic,
    unquote_topic,
)

SEGMENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(SEGMENTS, min_size=1, max_size=5).map("/".join)
FILTERS = st.lists(st.one_of(SEGMENTS, st.sampled_from(["*", "**"])), min_size=1, max_size=6).map("/".join)
TEXT = st.text(min_size=1, max_size=90).filter(lambda text: all(text.split("/")) and not set("*\0") & set(text))


def model(filter: str, topic: str) -> bool:
    """The definition, as a regular expression over the topic with a '/' before each segment."""
    pieces = {"*": "/[^/]+", "**": "(?:/[^/]+)*"}
    pattern = "".join(pieces.get(segment, "/" + re.escape(segment)) for segment in filter.split("/"))
    return re.fullmatch(pattern, "/" + topic) is not None


def nodes(root: _Node[int]) -> int:
    return 1 + sum(nodes(child) for child in root.values())


class TestNames:
    def test_one_leading_slash_is_dropped(self) -> None:
        assert parse_topic("/orders/created") == parse_topic("orders/created") == "orders/created"
        assert parse_filter("/orders/*") == "orders/*"

    @pytest.mark.parametrize("name", ["a//b", "//a", "a/", "/a/", "///"])
    def test_empty_segments_are_refused(self, name: str) -> None:
        for parse in (parse_topic, parse_filter):
            with pytest.raises(BadTopic, match="empty segment"):
                parse(name)

    @pytest.mark.parametrize("name", ["a\0b", "\0", "a/\0", "/\0/b"])
    def test_a_name_has_no_nul(self, name: str) -> None:
        for parse in (parse_topic, parse_filter):
            with pytest.raises(BadTopic, match="NUL character"):
                parse(name)

    @pytest.mark.parametrize("name", ["", "/"])
    def test_a_name_has_at_least_one_segment(self, name: str) -> None:
        with pytest.raises(BadTopic, match="it is empty"):
            parse_topic(name)

    def test_the_limit_counts_bytes_and_not_the_leading_slash(self) -> None:
        assert len(parse_topic("/" + "a" * 255)) == MAX_TOPIC_BYTES
        assert len(parse_topic("é" * 127).encode()) == 254
        with pytest.raises(BadTopic, match="256 bytes; at most 255"):
            parse_topic("é" * 128)
        with pytest.raises(BadTopic, match="256 bytes; at most 255"):
            parse_filter("a" * 256)

    @pytest.mark.parametrize("name", ["a/*", "**", "a*b"])
    def test_a_topic_has_no_wildcards(self, name: str) -> None:
        with pytest.raises(BadTopic, match="belongs to filters"):
            parse_topic(name)

    @pytest.mark.parametrize("name", ["a*", "a/***", "a/b*c/d"])
    def test_a_wildcard_is_a_whole_segment(self, name: str) -> None:
        with pytest.raises(BadTopic, match="whole segments"):
            parse_filter(name)

    def test_what_utf8_cannot_carry_is_refused(self) -> None:
        with pytest.raises(BadTopic, match="lone surrogates"):
            parse_topic("a/\ud800")

    @pytest.mark.parametrize("name", [None, 7, b"a", ["a"]])
    def test_what_is_no_string_is_refused(self, name: object) -> None:
        for parse in (parse_topic, parse_filter):
            with pytest.raises(BadTopic, match="give a str"):
                parse(name)  # type: ignore[arg-type]

    def test_the_error_carries_its_figures_and_stays_short(self) -> None:
        with pytest.raises(EchomeshError) as caught:
            parse_topic("x" * 100_000)
        error = caught.value
        assert isinstance(error, BadTopic)
        assert (error.what, len(str(error.name))) == ("topic", 100_000)
        assert len(str(error)) < 300

    @given(FILTERS, TOPICS)
    def test_the_one_spelling_of_a_filter_matches_the_same_topics(self, filter: str, topic: str) -> None:
        spelled = parse_filter(filter)
        assert model(spelled, topic) == model(filter, topic)
        assert parse_filter(spelled) == spelled

    def test_runs_of_wildcards_have_one_spelling(self) -> None:
        assert parse_filter("a/**/**/b") == "a/**/b"
        assert parse_filter("**/*/**/*") == parse_filter("*/*/**") == "*/*/**"


class TestMatches:
    @given(FILTERS, TOPICS)
    def test_it_agrees_with_the_definition(self, filter: str, topic: str) -> None:
        assert matches(filter, topic) == model(filter, topic)

    @pytest.mark.parametrize(
        ("filter", "topic", "expected"),
        [
            ("orders/**", "orders", True),
            ("orders/**", "orders/eu/created", True),
            ("**", "orders", True),
            ("**/created", "created", True),
            ("orders/*", "orders", False),
            ("orders/*", "orders/eu/created", False),
            ("a/**/b/**/c", "a/b/c", True),
            ("a/**/b", "a/b/c", False),
        ],
    )
    def test_two_stars_are_any_number_of_segments_and_one_star_is_one(
        self, filter: str, topic: str, expected: bool
    ) -> None:
        assert matches(filter, topic) is expected
        assert matches("/" + filter, "/" + topic) is expected

    def test_many_double_stars_stay_quick(self) -> None:
        filter = "/".join(["**", "a"] * 40 + ["b"])
        topic = "/".join(["a"] * 127)
        start = time.perf_counter()
        assert not matches(filter, topic)
        matcher: Matcher[int] = Matcher()
        matcher.add(filter, 1)
        assert matcher.match(topic) == frozenset()
        assert time.perf_counter() - start < 1


class TestCovers:
    def test_it_agrees_with_all_topics_for_all_small_filters(self) -> None:
        # Six segments tell all filters of up to four apart; z stands for every segment that no filter names.
        topics = ["/".join(path) for length in range(1, 7) for path in itertools.product("abz", repeat=length)]
        filters = {
            parse_filter("/".join(path))
            for length in range(1, 5)
            for path in itertools.product(["a", "b", "*", "**"], repeat=length)
        }
        matched = {
            filter: {number for number, topic in enumerate(topics) if model(filter, topic)} for filter in filters
        }
        wrong = [
            (wide, narrow)
            for wide, narrow in itertools.product(filters, repeat=2)
            if covers(wide, narrow) != (matched[narrow] <= matched[wide])
        ]
        assert wrong == []

    @given(FILTERS, FILTERS, TOPICS)
    def test_a_topic_of_the_narrow_one_is_a_topic_of_the_wide_one(self, wide: str, narrow: str, topic: str) -> None:
        if covers(wide, narrow) and model(narrow, topic):
            assert model(wide, topic)

    @given(FILTERS, FILTERS, FILTERS)
    def test_it_is_an_order(self, a: str, b: str, c: str) -> None:
        assert covers(a, a)
        assert covers("**", a)
        if covers(a, b) and covers(b, c):
            assert covers(a, c)
        assert covers(f"{a}/**/{c}", f"{a}/{b}/{c}")

    @given(FILTERS, TOPICS)
    def test_a_topic_is_covered_by_what_matches_it(self, filter: str, topic: str) -> None:
        assert covers(filter, topic) == matches(filter, topic)

    @pytest.mark.parametrize(
        ("wide", "narrow", "expected"),
        [
            ("orders/**", "orders/*/created", True),
            ("orders/**", "orders", True),
            ("orders/*", "orders/**", False),
            ("*/**", "**", True),
            ("a/*/**/a", "a/**/a/**/a", True),
            ("a/*/**/a", "a/**/a", False),
            ("a/**", "a*", None),
        ],
    )
    def test_examples(self, wide: str, narrow: str, expected: bool | None) -> None:
        if expected is None:
            with pytest.raises(BadTopic):
                covers(wide, narrow)
        else:
            assert covers("/" + wide, "/" + narrow) is expected

    def test_the_longest_filters_need_no_exponential_search(self) -> None:
        wide = "/".join(["**", "a"] * 40 + ["*"] * 10)
        assert not covers(wide, "/".join(["*"] * 20 + ["a"] * 60 + ["**"] + ["b"] * 20))
        assert not covers("/".join(["**", "a"] + ["*"] * 100), "**")


class TestFileNames:
    @given(TEXT)
    def test_every_topic_comes_back_from_its_path(self, name: str) -> None:
        if len(name.encode()) <= MAX_TOPIC_BYTES:
            topic = parse_topic(name)
            assert unquote_topic(quote_topic(topic)) == topic

    @given(TEXT)
    def test_every_part_is_a_safe_file_name(self, name: str) -> None:
        if len(name.encode()) <= MAX_TOPIC_BYTES:
            *heads, last = quote_topic(name).split("/")
            for part in (*heads, last):
                assert re.fullmatch(r"[A-Za-z0-9_~%-][A-Za-z0-9_.~%-]*", part)
                assert len(part) <= MAX_PART_BYTES
            assert all(head.endswith("%") for head in heads)
            assert not last.endswith("%")

    @pytest.mark.parametrize(
        ("topic", "path"),
        [
            ("orders/created", "orders%2Fcreated"),
            (".", "%2E"),
            ("..", "%2E."),
            ("../etc/passwd", "%2E.%2Fetc%2Fpasswd"),
            ("a/..", "a%2F.."),
            ("100%", "100%25"),
            ("a\1b", "a%01b"),
            ("a b\n", "a%20b%0A"),
        ],
    )
    def test_names_that_mean_something_to_a_file_system_are_escaped(self, topic: str, path: str) -> None:
        assert quote_topic(topic) == path
        assert unquote_topic(path) == topic

    @pytest.mark.parametrize("topic", ["é" * 127, "." * 255, "a" * 255, "a/" * 127 + "a", "\1" * 255, "a" * 239 + ".b"])
    def test_the_longest_names_can_be_made_on_a_real_file_system(self, topic: str, tmp_path: Path) -> None:
        path = tmp_path / quote_topic(topic)
        path.mkdir(parents=True)
        assert path.is_dir()
        assert unquote_topic(str(path.relative_to(tmp_path))) == topic

    @pytest.mark.parametrize(
        "path", ["", "a b", "a%2f", "%41", "a%", "a%/b", "x/y", ".hidden", "%FF", "a%2F%2Fb", "a%2A", "é"]
    )
    def test_a_file_that_no_topic_has_is_refused(self, path: str) -> None:
        with pytest.raises(BadTopic, match="no topic has this file name"):
            unquote_topic(path)


class MatcherAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.matcher: Matcher[int] = Matcher(remembered=3)
        self.pairs: set[tuple[str, int]] = set()

    @rule(filter=FILTERS, value=st.integers(0, 12))
    def add(self, filter: str, value: int) -> None:
        pair = (parse_filter(filter), value)
        assert self.matcher.add(filter, value) == (pair not in self.pairs)
        self.pairs.add(pair)

    @rule(filter=FILTERS, value=st.integers(0, 12))
    def remove(self, filter: str, value: int) -> None:
        pair = (parse_filter(filter), value)
        assert self.matcher.remove(filter, value) == (pair in self.pairs)
        self.pairs.discard(pair)

    @rule()
    def remove_all(self) -> None:
        for filter, value in list(self.matcher):
            assert self.matcher.remove(filter, value)
        self.pairs.clear()
        assert nodes(self.matcher._root) == 1

    @rule(topic=TOPICS)
    def match(self, topic: str) -> None:
        assert self.matcher.match(topic) == {value for filter, value in self.pairs if model(filter, topic)}

    @invariant()
    def it_holds_exactly_the_pairs(self) -> None:
        assert set(self.matcher) == self.pairs
        assert len(self.matcher) == len(self.pairs)
        assert len(self.matcher._remembered) <= 3


TestMatcherAgainstAList = MatcherAgainstAList.TestCase


class TestMatcher:
    def test_a_value_under_overlapping_filters_is_found_once(self) -> None:
        matcher: Matcher[str] = Matcher()
        for filter in ("a/b", "a/*", "a/**", "**", "**/b"):
            assert matcher.add(filter, "me")
        assert matcher.match("a/b") == {"me"}

    def test_what_is_remembered_follows_every_change(self) -> None:
        matcher: Matcher[int] = Matcher()
        assert matcher.match("/a/b") == matcher.match("a/b") == frozenset()
        matcher.add("a/b", 1)
        assert matcher.match("a/b") == matcher.match("/a/b") == {1}
        matcher.add("a/*", 2)
        assert matcher.match("a/b") == {1, 2}
        matcher.remove("/a/b", 1)
        assert matcher.match("a/b") == {2}
        matcher.remove("a/*", 2)
        assert matcher.match("a/b") == frozenset()

    def test_memory_of_recent_topics_is_bounded(self) -> None:
        matcher: Matcher[int] = Matcher(remembered=100)
        for value in range(1000):
            matcher.add("all/**", value)
        for number in range(1000):
            assert len(matcher.match(f"all/{number}")) == 1000
            matcher.match(f"none/{number}")
        assert len(matcher._remembered) == 100
        assert not any(matcher._remembered.values())

    def test_removing_everything_leaves_no_node(self) -> None:
        matcher: Matcher[int] = Matcher()
        names = [f"{a}/*/{b}/**/{a}" for a in range(30) for b in range(30)]
        for value, name in enumerate(names):
            matcher.add(name, value)
        assert nodes(matcher._root) > 900
        for value, name in enumerate(names):
            assert matcher.remove(name, value)
        assert (nodes(matcher._root), len(matcher), matcher._root.one, matcher._root.any) == (
            1,
            0,
            None,
            None,
        )

    def test_a_value_that_cannot_be_kept_leaves_nothing_behind(self) -> None:
        matcher: Matcher[list[int]] = Matcher()  # type: ignore[type-var]
        with pytest.raises(TypeError):
            matcher.add("a/*/b", [])
        assert nodes(matcher._root) == 1  # type: ignore[arg-type]

    def test_bad_names_are_refused(self) -> None:
        matcher: Matcher[int] = Matcher()
        with pytest.raises(BadTopic):
            matcher.add("a//b", 1)
        with pytest.raises(BadTopic):
            matcher.remove("a*", 1)
        with pytest.raises(BadTopic):
            matcher.match("a/*")

    def test_ten_thousand_double_stars_over_one_topic_stay_quick(self) -> None:
        matcher: Matcher[int] = Matcher()
        for number in range(10_000):
            matcher.add(f"**/x/**/{number}/**/y", number)
        start = time.perf_counter()
        assert matcher.match("/".join(["x"] * 120 + ["7", "y"])) == {7}
        assert time.perf_counter() - start < 1

    def test_a_hundred_thousand_subscriptions_cost_no_more_than_a_few_times_a_hundred(self) -> None:
        # bench/ measures the figure itself; here a linear search (a thousandfold) must show on any machine.
        row = filters.row(quick=True)
        assert row.ratio is not None
        assert row.ratio > 0.1
