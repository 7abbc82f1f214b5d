"""Whatever is sent: an answer that is no 500, or the end of the connection, and a server that goes on."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echomesh.mesh.http import HttpOptions
from echomesh.mesh.options import MeshOptions
from tests.mesh.access_support import CLIENTS
from tests.mesh.http_support import BATCHED, STRUCTURED, Web, an_event, basic
from tests.support.counts import count

IMPATIENT = HttpOptions(idle_s=0.05, body_s=0.05, heartbeat_s=0.05)
SMALL = MeshOptions(frame_bytes=20_000)
EVENT = an_event(1, data={"a": [1, None, "x"]}, subject="s").to_json()
BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
NO_SHARING = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

methods = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT", "CONNECT", "get", "TRACE"])
segments = st.sampled_from(["a", "*", "**", "", "%2F", "%FF", "%", "%C3%A9", ".", "..", "a*", "%00", "%0a", "x" * 300])
paths = st.one_of(
    st.sampled_from(["/topics", "/health", "/", "*", "/topics/", "//topics/a", "http://other/topics/a", "/%74opics/a"]),
    st.lists(segments, max_size=5).map(lambda parts: "/topics/" + "/".join(parts)),
)
words = st.sampled_from(
    ["now", "earliest", "last", "acknowledged", "0", "-1", "9" * 30, "2020-01-01T00:00:00Z", "TST", "VAL", "x", "",
     "%00", "true", "a/*", "AS5rLypIpxEL", "%FF", "\u00e9".encode().decode("latin-1")]
)  # fmt: skip
keys = st.sampled_from(["start", "group", "environment", "after", "position", "filter", "limit", "other"])
queries = st.lists(st.tuples(keys, words).map("=".join), max_size=3).map("&".join)
values = st.one_of(
    words,
    st.sampled_from(
        ["1.0", "0.3", "/s", "application/json", *STRUCTURED.values(), *BATCHED.values(), "text/plain", "gzip",
         "100-continue", "chunked", "close", "text/event-stream", "Basic Og==", basic("shop")["Authorization"],
         "*/*;q=x", "websocket", "upgrade"]
    ),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20),
)  # fmt: skip
names = st.one_of(
    st.sampled_from(
        ["Host", "Content-Type", "Accept", "Authorization", "Last-Event-ID", "X-EventMesh-Environment",
         "Content-Length", "Transfer-Encoding", "Expect", "Connection", "Content-Encoding", "Origin", "Upgrade",
         "ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-subject", "ce-data", "ce-", "ce-x"]
    ),
    st.from_regex(r"ce-[a-zA-Z0-9_.-]{1,12}", fullmatch=True),
)  # fmt: skip
bodies = st.one_of(
    st.binary(max_size=100),
    st.sampled_from([EVENT, b"[" + EVENT + b"]", b"[]", b"{}", b"null", b'"x"', b"[" * 5000, EVENT * 2, b"x" * 20_001]),
    st.tuples(st.integers(0, len(EVENT)), st.binary(max_size=4)).map(
        lambda cut: EVENT[: cut[0]] + cut[1] + EVENT[cut[0] :]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
)


@pytest.fixture(params=[None, CLIENTS], ids=["open", "clients"])
def clients(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def web(clients: str | None, shm_dir: Path) -> Iterator[Web]:
    with Web(shm_dir, clients, options=SMALL) as web:
        yield web


@pytest.fixture
def impatient(clients: str | None, shm_dir: Path) -> Iterator[Web]:
    """Requests that do not end are soon given up."""
    with Web(shm_dir, clients, IMPATIENT, options=SMALL) as web:
        yield web


def exchange(web: Web, data: bytes) -> int | None:
    """The status of the first answer to these bytes; None when there was none."""
    with web.socket() as sock:
        with suppress(OSError):
            sock.sendall(data)
        # An answer to HEAD has a length and no body; what follows it may be the next answer.
        response = http.client.HTTPResponse(sock, method=data.partition(b" ")[0].decode("latin-1"))
        try:
            response.begin()
            if response.headers.get_content_type() == "text/event-stream":
                return response.status
            body = response.read()
        except (http.client.HTTPException, OSError):
            return None
        if response.status >= 400 and body:
            assert response.headers["content-type"] == "application/problem+json", (response.status, body)
            assert json.loads(body)["status"] == response.status
        return response.status


def test_no_request_makes_the_server_fail(impatient: Web) -> None:
    @settings(max_examples=count(100, 2_000), suppress_health_check=NO_SHARING)
    @given(methods, paths, queries, st.lists(st.tuples(names, values), max_size=6), st.booleans(), bodies)
    def check(method: str, path: str, query: str, headers: list[tuple[str, str]], sound: bool, body: bytes) -> None:
        if sound:
            headers = [("Host", "localhost"), ("Content-Length", str(len(body))), *headers, *basic("root").items()]
        head = [f"{method} {path}?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        status = exchange(impatient, "\r\n".join(head).encode("latin-1") + body)
        assert status is None or status < 500, (status, head, body)

    check()
    assert impatient.ask("GET", "/health").json == {"status": "ok"}


def test_no_event_makes_the_server_fail(web: Web) -> None:
    modes = st.sampled_from(
        [STRUCTURED, BATCHED, BINARY, {**BINARY, **STRUCTURED}, {**BINARY, "Content-Type": "text/plain"}]
    )

    @settings(max_examples=count(100, 2_000), suppress_health_check=NO_SHARING)
    @given(modes, st.dictionaries(names.filter(lambda name: name.startswith("ce-")), values, max_size=3), bodies)
    def check(mode: dict[str, str], more: dict[str, str], body: bytes) -> None:
        headers = {"Host": "localhost", "Content-Length": str(len(body)), **mode, **more, **basic("root")}
        head = ["POST /topics/b HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        assert exchange(web, "\r\n".join(head).encode("latin-1") + body) in (200, 400, 413, 415)

    check()
    assert web.ask("GET", "/health").json == {"status": "ok"}


def test_no_bytes_make_the_server_fail(impatient: Web) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    whole = b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: %s\r\n\r\n" % (
        STRUCTURED["Content-Type"].encode()
    ) + b"%x\r\n%s\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" % (len(EVENT), EVENT)
    assert exchange(impatient, whole) in (200, 401, None)
    for _ in range(count(60, 2_000)):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            change = chance.choice(["flip", "cut", "repeat", "insert"])
            if change == "flip":
                data[at] ^= 1 << chance.randrange(8)
            elif change == "cut":
                del data[at : at + chance.randint(1, 30)]
            elif change == "repeat":
                data[at:at] = data[at : at + 30]
            else:
                data[at:at] = chance.choice([b"\r\n", b"\0", b"\xff" * 5, b"\n\n", b"\r\n\r\n", b": ", b"chunked"])
            data = data or bytearray(b"x")
        status = exchange(impatient, bytes(data))
        assert status is None or status < 500, (seed, bytes(data))
    assert impatient.ask("GET", "/health").json == {"status": "ok"}
