"""Publishing over HTTP: the three modes of CloudEvents, from curl, the SDK and our own events."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from typing import Any

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import HealthCheck, given, settings

from echomesh.events import Event
from echomesh.log import LogReader
from echomesh.mesh import http_publish
from tests.events.samples import events as any_events
from tests.mesh.http_support import BATCHED, STRUCTURED, Web, an_event, some_events
from tests.support.counts import count


def stored(web: Web, topic: str, environment: str = "TST") -> list[Event]:
    """What is in the log, as another process would read it."""
    with LogReader(web.directory) as log:
        return [Event.decode(event) for event in log.topic(topic, environment=environment).read(0).events()]


def test_an_event_in_structured_mode_is_in_the_log_when_it_is_answered(web: Web) -> None:
    event = an_event(1, data={"total": 12}, subject="7", extensions={"level": 3, "hot": True})
    answer = web.ask("POST", "/topics/orders/created", event.to_json(), STRUCTURED)
    assert (answer.status, answer.json) == (200, {"topic": "orders/created", "offset": 0})
    assert stored(web, "orders/created") == [event]


def test_an_event_in_binary_mode_has_its_attributes_in_headers_and_its_data_as_it_is(web: Web) -> None:
    event = an_event('é %"', data=b"\x00\xff", datacontenttype="image/png", subject="ünï")
    headers, body = event.to_http()
    answer = web.ask("POST", "/topics/orders/created", body, headers)
    assert (answer.status, answer.json) == (200, {"topic": "orders/created", "offset": 0})
    assert stored(web, "orders/created") == [event]


@pytest.mark.parametrize(
    ("content_type", "body", "payload"),
    [
        ("text/plain", "grüße".encode(), "grüße"),
        ("text/plain; charset=utf-8", b"hello", "hello"),
        ('text/html;charset="US-ASCII"', b"<p>", "<p>"),
        ("text/plain", b"\xff", b"\xff"),
        ("text/plain; charset=iso-8859-1", b"\xfc", b"\xfc"),
        ("text/json", b"[1]", b"[1]"),
        ("application/json", b'{"a": 1}', b'{"a": 1}'),
        ("application/x-www-form-urlencoded", b"a=b", b"a=b"),
        (None, b"bytes", b"bytes"),
        ("application/json", b"", None),
    ],
)
def test_data_in_binary_mode_is_text_where_its_type_says_so_and_bytes_otherwise(
    web: Web, content_type: str | None, body: bytes, payload: object
) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    if content_type is not None:
        headers["Content-Type"] = content_type
    assert web.ask("POST", "/topics/a", body, headers).status == 200
    [event] = stored(web, "a")
    assert (event.payload, event.datacontenttype) == (payload, content_type)


def test_a_batch_is_published_in_order_and_answered_with_every_offset(web: Web) -> None:
    events = some_events(100, data={"x": 1})
    assert web.publish("orders/created", *events) == list(range(100))
    assert stored(web, "orders/created") == events


def test_an_empty_batch_publishes_nothing(web: Web) -> None:
    answer = web.ask("POST", "/topics/a", b" [] ", BATCHED)
    assert (answer.status, answer.json) == (200, [])


def test_one_wrong_event_of_a_batch_keeps_all_of_it_out(web: Web) -> None:
    body = b"[%s, %s]" % (an_event(1).to_json(), an_event(2).to_json().replace(b'"/shop"', b'""'))
    answer = web.ask("POST", "/topics/a", body, BATCHED)
    assert answer.problem == (400, "fail", "")
    assert "event 1 of the batch" in answer.json["detail"]
    assert web.ask("GET", "/topics").json["topics"] == []


def test_the_same_event_again_has_its_first_offset(web: Web) -> None:
    assert web.publish("a", an_event(1), an_event(2), an_event(1)) == [0, 1, 0]
    assert web.publish("a", an_event(2)) == [1]


def test_a_topic_is_spelled_in_one_way_and_may_have_any_characters(web: Web) -> None:
    answer = web.ask("POST", "/topics//orders%2Fcr%C3%A9%C3%A9%3F%23%25", an_event().to_json(), STRUCTURED)
    assert answer.json == {"topic": "orders/créé?#%", "offset": 0}
    assert len(stored(web, "orders/créé?#%")) == 1


@pytest.mark.parametrize(
    ("headers", "query", "environment"),
    [
        ({}, "", "TST"),
        ({"X-EventMesh-Environment": "VAL"}, "", "VAL"),
        ({}, "?environment=PRD", "PRD"),
        ({"X-EventMesh-Environment": "VAL"}, "?environment=PRD", "VAL"),
    ],
)
def test_the_environment_is_named_by_header_or_query(
    web: Web, headers: dict[str, str], query: str, environment: str
) -> None:
    answer = web.ask("POST", f"/topics/a{query}", an_event().to_json(), {**STRUCTURED, **headers})
    assert answer.status == 200
    assert [len(stored(web, "a", environment))] == [1]
    listed = web.ask("GET", f"/topics?environment={environment}").json
    assert listed == {"environment": environment, "topics": [{"topic": "a", "earliest": 0, "end": 1}]}
    others = {"TST", "VAL", "PRD"} - {environment}
    assert all(web.ask("GET", f"/topics?environment={other}").json["topics"] == [] for other in others)


def test_requests_may_share_a_connection(web: Web) -> None:
    connection = web.connection()
    for number in range(20):
        connection.request("POST", "/topics/a", an_event(number).to_json(), STRUCTURED)
        response = connection.getresponse()
        assert json.loads(response.read()) == {"topic": "a", "offset": number}
    connection.close()
    assert len(stored(web, "a")) == 20


def test_a_large_event_comes_through_whole(web: Web) -> None:
    event = an_event(data=bytes(range(256)) * (10 << 12))
    assert web.publish("a", event) == [0]
    assert stored(web, "a") == [event]


# The SDK


def sdk_event(data: Any) -> CloudEvent:
    attributes = {"id": "1", "source": "/shop", "type": "t", "specversion": "1.0", "subject": "grüße", "note": "x y"}
    kinds: dict[type, str] = {dict: "application/json", str: "text/plain", bytes: "application/octet-stream"}
    return CloudEvent({**attributes, "datacontenttype": kinds[type(data)]}, data)


@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize("data", [{"total": 12, "items": ["a"]}, "grüße", b"\x00\xff"], ids=["json", "text", "bytes"])
def test_requests_that_the_sdk_makes_are_understood(web: Web, mode: str, data: object) -> None:
    made = sdk_event(data)
    message = (sdk.to_structured if mode == "structured" else sdk.to_binary)(made, JSONFormat())
    assert web.ask("POST", "/topics/a", message.body, message.headers).status == 200
    [event] = stored(web, "a")
    assert event.canonical_attributes() == Event.from_cloudevent(made).canonical_attributes()
    assert event.data == data


def test_a_batch_of_what_the_sdk_writes_is_understood(web: Web) -> None:
    written = [JSONFormat().write(sdk_event({"n": n})) for n in range(3)]
    body = b"[" + b",".join(text.replace(b'"id": "1"', b'"id": "%d"' % n) for n, text in enumerate(written)) + b"]"
    assert [entry["offset"] for entry in web.ask("POST", "/topics/a", body, BATCHED).json] == [0, 1, 2]


@pytest.mark.parametrize("data", [{"total": 12, "items": ["a"]}, "grüße", b"\x00\xff"], ids=["json", "text", "bytes"])
def test_the_sdk_understands_what_a_subscriber_gets(web: Web, data: object) -> None:
    made = sdk_event(data)
    message = sdk.to_structured(made, JSONFormat())
    web.ask("POST", "/topics/a", message.body, message.headers)
    with web.subscribe("a?start=earliest") as reader:
        got = sdk.from_structured(sdk.HTTPMessage({}, reader.next().data.encode()), JSONFormat(), CloudEvent)
    assert got.get_attributes() == made.get_attributes()
    assert got.get_data() == data


def test_every_event_comes_out_as_it_went_in(web: Web) -> None:
    topic = iter(range(1 << 30))

    @settings(max_examples=count(25, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(any_events)
    def check(event: Event) -> None:
        name = f"t/{next(topic)}"
        headers, body = event.to_http()
        assert web.ask("POST", f"/topics/{name}", event.to_json(), STRUCTURED).status == 200
        assert web.ask("POST", f"/topics/{name}/b", body, headers).status == 200
        with web.subscribe(f"{name}?start=earliest") as reader:
            assert reader.next().cloud_event == Event.from_json(event.to_json())
        [binary] = stored(web, f"{name}/b")
        assert binary.canonical_attributes() == Event.from_http(headers, body).canonical_attributes()
        assert (binary.payload or b"") in (body, body.decode(errors="replace"))

    check()


# curl


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_publishes_in_all_three_modes(web: Web) -> None:
    url = f"http://127.0.0.1:{web.port}/topics/orders/created"
    binary = [
        f"ce-{name}: {value}" for name, value in [("specversion", "1.0"), ("id", "b"), ("source", "/s"), ("type", "t")]
    ]
    calls = [
        (["content-type: application/cloudevents+json"], an_event("a").to_json().decode()),
        ([*binary, "content-type: application/json"], '{"total": 12}'),
        (["content-type: application/cloudevents-batch+json"], f"[{an_event('c').to_json().decode()}]"),
    ]
    answers = []
    for headers, body in calls:
        options = [option for header in headers for option in ("-H", header)]
        done = subprocess.run(
            ["curl", "-sS", "--fail-with-body", *options, "-d", body, url], capture_output=True, text=True, check=True
        )
        answers.append(json.loads(done.stdout))
    expected = [{"topic": "orders/created", "offset": offset} for offset in range(3)]
    assert answers == [expected[0], expected[1], [expected[2]]]
    assert [event.id for event in stored(web, "orders/created")] == ["ea", "b", "ec"]
    assert stored(web, "orders/created")[1].data == {"total": 12}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_subscribes(web: Web) -> None:
    web.publish("orders/created", *some_events(3))
    command = ["curl", "-sSN", f"http://127.0.0.1:{web.port}/topics/orders/*?start=earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        lines = (line.removeprefix("data: ") for line in curl.stdout if line.startswith("data: "))
        assert [Event.from_json(next(lines)).id for _ in range(3)] == ["e0", "e1", "e2"]
        web.publish("orders/paid", an_event("new"))
        assert Event.from_json(next(lines)).id == "enew"
        curl.kill()


@pytest.mark.parametrize("batched", [False, True], ids=["structured", "batched"])
def test_a_large_body_is_looked_at_beside_the_event_loop(
    web: Web, monkeypatch: pytest.MonkeyPatch, batched: bool
) -> None:
    threads: list[str] = []
    parse = http_publish.parse

    def watched(*args: Any) -> list[bytes]:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return parse(*args)

    monkeypatch.setattr(http_publish, "parse", watched)
    for size in (10, 1 << 20):
        event = {"specversion": "1.0", "id": str(size), "source": "/s", "type": "t", "data": "x" * size}
        body = json.dumps([event] if batched else event).encode()
        assert web.ask("POST", "/topics/orders", body, BATCHED if batched else STRUCTURED).status == 200
    assert threads[0] != "echomesh-http-bodies"
    assert threads[1] == "echomesh-http-bodies"
    wrong = b"[" + b'{"specversion":"1.0"},' * 100_000 + b"]"
    assert web.ask("POST", "/topics/orders", wrong, BATCHED if batched else STRUCTURED).problem[0] == 400
