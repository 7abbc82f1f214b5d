"""Who may what over HTTP: the rights of sessions, and nothing for a page of elsewhere behind a user's back."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomesh.errors import LoginBusy
from echomesh.mesh.access import Access
from echomesh.mesh.http import HttpOptions
from echomesh.mesh.http_auth import ASK
from tests.mesh.access_support import CLIENTS
from tests.mesh.http_support import STRUCTURED, Web, an_event, basic, some_events
from tests.mesh.support import Raw

EVENT = an_event().to_json()


@pytest.fixture
def web(shm_dir: Path) -> Iterator[Web]:
    with Web(shm_dir, CLIENTS, HttpOptions(heartbeat_s=0.05)) as web:
        yield web


def test_a_client_publishes_and_subscribes_with_its_password(web: Web) -> None:
    with web.subscribe("orders/*", who="shop") as reader:
        assert web.publish("orders/created", *some_events(3), who="shop") == [0, 1, 2]
        assert reader.ids(3) == ["e0", "e1", "e2"]


def test_the_health_needs_no_password(web: Web) -> None:
    assert web.ask("GET", "/health").json == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/topics"), ("GET", "/topics/orders/a"), ("POST", "/topics/orders/a")]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("shop", "wrong"),
        basic("shop", ""),
        basic("nobody"),
        basic("*"),
        basic(""),
        {"Authorization": "Bearer x"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic ???"},
        {"Authorization": "Basic " + base64.b64encode(b"no colon").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff:\xff").decode()},
        {"Authorization": basic("shop")["Authorization"] + "="},
    ],
)
def test_who_is_not_known_is_asked_who_it_is(web: Web, method: str, path: str, headers: dict[str, str]) -> None:
    answer = web.ask(method, path, EVENT if method == "POST" else None, {**STRUCTURED, **headers})
    assert answer.problem == (401, "aclFail", "NOT_AUTHORIZED")
    assert answer.headers["www-authenticate"] == ASK["WWW-Authenticate"]
    assert "secret" not in answer.body.decode()


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("POST", "/topics/other", "UNAUTHORIZED_PUBLISH"),
        ("GET", "/topics/other", "UNAUTHORIZED_SUBSCRIBE"),
        ("GET", "/topics/**", "UNAUTHORIZED_SUBSCRIBE"),
        ("GET", "/topics/*/created", "UNAUTHORIZED_SUBSCRIBE"),
        ("GET", "/topics/**?group=g", "UNAUTHORIZED_SUBSCRIBE"),
        ("POST", "/topics/orders/a?environment=VAL", "NOT_AUTHORIZED"),
        ("GET", "/topics/orders/a?environment=PRD", "NOT_AUTHORIZED"),
        ("GET", "/topics?environment=PRD", "NOT_AUTHORIZED"),
    ],
)
def test_what_a_client_has_no_right_to_is_refused(web: Web, method: str, path: str, error: str) -> None:
    answer = web.ask(method, path, EVENT if method == "POST" else None, STRUCTURED, who="shop")
    assert answer.problem == (403, "aclFail", error)


def test_a_client_sees_the_topics_that_it_may_subscribe_to(web: Web) -> None:
    for topic in ("orders/a", "orders/b", "secret"):
        web.publish(topic, an_event(), who="root")

    def names(who: str, query: str = "") -> list[str]:
        return [entry["topic"] for entry in web.ask("GET", f"/topics{query}", who=who).json["topics"]]

    assert names("root") == ["orders/a", "orders/b", "secret"]
    assert names("shop") == ["orders/a", "orders/b"]
    assert names("slow") == []
    assert names("root", "?filter=orders/*") == ["orders/a", "orders/b"]
    assert names("root", "?limit=2") == ["orders/a", "orders/b"]
    assert names("root", "?limit=2&after=orders/b") == ["secret"]


def test_a_reader_whose_entry_changes_is_judged_anew(web: Web) -> None:
    with web.subscribe("orders/*", who="shop") as reader, web.subscribe("orders/*", who="root") as other:
        web.access = Access.parse(CLIENTS.replace('subscribe = ["orders/**"]', "subscribe = []"), "x", web.access)
        [told] = reader.rest()
        assert (told.event, "changed" in told.json["reason"]) == ("end", True)
        web.publish("orders/a", an_event(1), who="root")
        assert other.ids(1) == ["e1"]
    assert web.ask("GET", "/topics/orders/*", who="shop").problem == (403, "aclFail", "UNAUTHORIZED_SUBSCRIBE")


def test_who_guesses_passwords_has_to_wait_over_http_and_over_sessions(web: Web) -> None:
    guesses = (web.ask("GET", "/topics", who="shop", password=f"guess {n}") for n in range(20))
    answers = [answer for answer in guesses if answer.status != 401]
    assert answers[0].problem == (429, "aclFail", "NOT_AUTHORIZED")
    assert int(answers[0].headers["retry-after"]) >= 1
    for _ in range(10):  # now it is a minute, whatever this machine does meanwhile
        web.see(lambda: web.server.core.guesses.failed("127.0.0.1", asyncio.get_running_loop().time(), "shop"))
    # The right password has to wait as well, other clients of the same address do not.
    assert web.ask("GET", "/topics", who="shop").status == 429
    assert web.ask("GET", "/topics", who="root").status == 200

    async def hello() -> str | None:
        session = await Raw.connect(web.mesh_port)
        answer = await session.hello("shop", password="secret")
        session.close()
        return answer.description

    assert "too many wrong passwords" in (asyncio.run(hello()) or "")


def test_to_ask_without_a_password_is_no_guess(web: Web) -> None:
    assert {web.ask("GET", "/topics").status for _ in range(150)} == {401}
    assert web.ask("GET", "/topics", who="shop").status == 200


def test_when_too_many_passwords_wait_the_next_is_told_when_to_come_again(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise LoginBusy(258)

    monkeypatch.setattr(web.server.core.judge(True), "verify", busy)
    answer = web.ask("GET", "/topics", who="shop")
    assert answer.problem == (503, "fail", "")
    assert answer.headers["retry-after"] == "3"


# Open to this machine alone


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:80", 200), ("127.0.0.1", 200), ("127.1.2.3:4889", 200), ("[::1]:8080", 200),
        ("mesh.localhost", 200), ("my-robot:80", 200),
        ("evil.example", 403), ("evil.example:80", 403), ("localhost.evil.example", 403), ("192.0.2.1", 403),
        ("[2001:db8::1]", 403), ("", 403),
    ],
)  # fmt: skip
def test_without_an_access_file_only_names_of_this_machine_are_answered(shm_dir: Path, host: str, status: int) -> None:
    with Web(shm_dir, None, HttpOptions(hosts=("my-robot",))) as web:
        assert web.ask("GET", "/topics", headers={"Host": host}).status == status
        assert web.ask("POST", "/topics/a", EVENT, {**STRUCTURED, "Host": host}).status == status


def test_with_an_access_file_any_name_will_do(web: Web) -> None:
    assert web.ask("GET", "/topics", headers={"Host": "mesh.example"}, who="shop").status == 200


def test_what_a_proxy_says_of_the_peer_is_not_believed(web: Web) -> None:
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        assert web.ask("GET", "/topics", headers={header: "127.0.0.1"}).status == 401


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_of_another_page_can_send_publishes_nothing(shm_dir: Path, kind: str) -> None:
    with Web(shm_dir) as web:
        answer = web.ask("POST", "/topics/a", EVENT, {"Content-Type": kind, "Origin": "https://evil.example"})
        assert answer.problem == (415, "fail", "")


# Pages of other origins


PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "ce-id,content-type,authorization"}  # fmt: skip


def test_pages_of_other_origins_are_told_nothing_by_default(web: Web) -> None:
    assert web.ask("OPTIONS", "/topics/orders/a", headers=PREFLIGHT).problem[0] == 405
    answer = web.ask("GET", "/topics", headers={"Origin": "https://app.example"}, who="shop")
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


def test_pages_of_origins_that_are_named_may_use_it(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS, HttpOptions(origins=("https://app.example",))) as web:
        answer = web.ask("OPTIONS", "/topics/orders/a", headers=PREFLIGHT)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "ce-id" in answer.headers["access-control-allow-headers"]
        assert answer.headers["access-control-allow-credentials"] == "true"
        other = {**PREFLIGHT, "Origin": "https://evil.example"}
        assert "access-control-allow-origin" not in web.ask("OPTIONS", "/topics/orders/a", headers=other).headers
        refused = web.ask("GET", "/topics", headers={"Origin": "https://app.example"})
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
        with web.subscribe("orders/*", {"Origin": "https://app.example"}, who="shop") as reader:
            assert reader.response.headers["access-control-allow-origin"] == "https://app.example"


def test_everybodys_pages_may_use_it_without_passwords_that_the_browser_remembers(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS, HttpOptions(origins=("*",))) as web:
        answer = web.ask("GET", "/topics", headers={"Origin": "https://any.example"}, who="shop")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


# TLS


def certificate(directory: Path) -> tuple[Path, Path]:
    made, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


def test_https_serves_the_same(shm_dir: Path, tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with Web(shm_dir, CLIENTS, HttpOptions(), tls=context) as web:
        url = f"https://localhost:{web.port}/topics/orders/a"
        trusting = ssl.create_default_context(cafile=made)
        request = urllib.request.Request(url, EVENT, {**STRUCTURED, **basic("shop")})
        with urllib.request.urlopen(request, context=trusting) as response:
            assert response.read() == b'{"topic":"orders/a","offset":0}'
        request = urllib.request.Request(f"{url}?start=earliest", headers=basic("shop"))
        with urllib.request.urlopen(request, context=trusting) as response:
            assert any(line.startswith(b"data: ") for line in response)
