"""Requests that are refused for what they say."""

from __future__ import annotations

import pytest

from tests.mesh.http_limits_support import BINARY, EVENT, head, reply
from tests.mesh.http_support import BATCHED, STRUCTURED, Web, answer


@pytest.mark.parametrize(
    ("headers", "body", "status", "word"),
    [
        ({}, EVENT, 415, "ce-id"),
        ({"Content-Type": "application/json"}, EVENT, 415, "ce-id"),
        ({"Content-Type": "application/cloudevents+avro"}, EVENT, 415, "JSON"),
        ({"Content-Type": "application/cloudevents"}, EVENT, 415, "JSON"),
        ({"Content-Type": "application/cloudevents+json; charset=utf-16"}, EVENT, 415, "UTF-8"),
        ({**STRUCTURED, "Content-Encoding": "gzip"}, EVENT, 415, "Content-Encoding"),
        (STRUCTURED, b"", 400, "JSON"),
        (STRUCTURED, b"{}", 400, "specversion"),
        (STRUCTURED, b"[]", 400, "object"),
        (STRUCTURED, b"\xff\xfe", 400, "JSON"),
        (STRUCTURED, b"[" * 100_000, 400, "JSON"),
        (STRUCTURED, EVENT.replace(b'"1.0"', b'"0.3"'), 400, "specversion"),
        (STRUCTURED, EVENT + EVENT, 400, "JSON"),
        (BATCHED, EVENT, 400, "batch"),
        (BATCHED, b"[1]", 400, "batch"),
        (BATCHED, b"[{}]", 400, "specversion"),
        (BATCHED, b"[%s" % EVENT, 400, "batch"),
        (BATCHED, b'[{"specversion":"1.0"}]', 400, "event 0"),
        (BATCHED, b"[" * 100_000, 400, "batch"),
        ({"ce-id": "1"}, b"", 400, "specversion"),
        ({**BINARY, "ce-time": "yesterday"}, b"", 400, "time"),
        ({**BINARY, "ce-source": ""}, b"", 400, "source"),
        ({**BINARY, "ce-Data": "x"}, b"", 400, "data"),
        ({**BINARY, "ce-datacontenttype": "text/plain"}, b"", 400, "content-type"),
        ({**BINARY, "ce-under_score": "x"}, b"", 400, "under_score"),
        ({**BINARY, "ce-": "x"}, b"", 400, "name"),
        ({**BINARY, "ce-id": "%FF"}, b"", 400, "UTF-8"),
        ({**BINARY, "ce-id": "\xff"}, b"", 400, "UTF-8"),
        ({**BINARY, "Content-Type": "nonsense"}, b"x", 400, "datacontenttype"),
        ({**STRUCTURED, "X-EventMesh-Environment": "DEV"}, EVENT, 400, "TST"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(
    web: Web, headers: dict[str, str], body: bytes, status: int, word: str
) -> None:
    given = web.ask("POST", "/topics/a", body, headers)
    assert given.problem == (status, "fail", "")
    assert word in given.json["detail"], given
    assert web.ask("GET", "/topics").json["topics"] == []


def test_an_attribute_that_comes_twice_is_refused(web: Web) -> None:
    with web.socket() as sock:
        sock.sendall(head("/topics/a", {**BINARY, "Content-Length": "0"})[:-2] + b"CE-ID: 2\r\n\r\n")
        given = answer(reply(sock))
    assert given.problem == (400, "fail", "")
    assert "ce-id" in given.json["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/topics/",
        "/topics//",
        "/topics/a//b",
        "/topics/a/",
        "/topics/a*",
        "/topics/**",
        "/topics/%FF",
        "/topics/" + "a" * 256,
    ],
)
def test_what_is_no_topic_is_refused(web: Web, path: str) -> None:
    assert web.ask("POST", path, EVENT, STRUCTURED).problem == (400, "fail", "")


@pytest.mark.parametrize("path", ["/topics/a*b", "/topics/a//b", "/topics/%C3", "/topics/" + "*/" * 200])
def test_what_is_no_filter_is_refused(web: Web, path: str) -> None:
    assert web.ask("GET", path).problem == (400, "fail", "")


@pytest.mark.parametrize("query", ["filter=a*b", "limit=x", "limit=-1", "environment=dev"])
def test_what_can_not_be_listed_is_refused(web: Web, query: str) -> None:
    assert web.ask("GET", f"/topics?{query}").problem == (400, "fail", "")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404), ("GET", "/nothing", 404), ("POST", "/topic/a", 404), ("GET", "/topics.html", 404),
        ("POST", "/topics", 405), ("PUT", "/topics/a", 405), ("DELETE", "/topics/a", 405), ("POST", "/health", 405),
        ("OPTIONS", "/topics/a", 405), ("TRACE", "/health", 405), ("BREW", "/topics/a", 405),
    ],
)  # fmt: skip
def test_other_paths_and_methods_are_told_as_problems(web: Web, method: str, path: str, status: int) -> None:
    assert web.ask(method, path).problem == (status, "fail", "")
