"""Limits of HTTP: sizes, times, numbers, and a server that stops."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from echomesh.errors import BusyError, StorageError
from echomesh.mesh.bodies import Publish
from echomesh.mesh.codes import Command, Purpose
from echomesh.mesh.http import HttpOptions, serve_http
from echomesh.mesh.options import MeshOptions
from tests.log.support import ENOSPC, FOREVER, FaultyStorage, small
from tests.mesh.access_support import CLIENTS
from tests.mesh.http_limits_support import EVENT, drained, head, reply, until
from tests.mesh.http_support import BATCHED, PATIENCE_S, STRUCTURED, Web, an_event, answer, basic
from tests.mesh.support import Raw

# Too large


def test_a_body_over_the_limit_is_refused_before_it_is_sent(shm_dir: Path) -> None:
    with Web(shm_dir, options=MeshOptions(frame_bytes=1000)) as web:
        fits = an_event(data="x" * (1000 - len(an_event(data="").to_json()))).to_json()
        assert len(fits) == 1000
        assert web.ask("POST", "/topics/a", fits, STRUCTURED).status == 200
        for length in ("1001", "9" * 20):
            with web.socket() as sock:
                sock.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": length}))
                given = answer(reply(sock))
                assert given.problem == (413, "fail", "")
                assert "1000" in given.json["detail"]
                assert drained(sock)


def test_a_body_of_unknown_length_over_the_limit_is_refused(shm_dir: Path) -> None:
    with Web(shm_dir, options=MeshOptions(frame_bytes=1000)) as web, web.socket() as sock:
        sock.sendall(head("/topics/a", {**STRUCTURED, "Transfer-Encoding": "chunked"}))
        sock.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n" + b"1\r\n \r\n")
        assert answer(reply(sock)).problem == (413, "fail", "")
        assert web.see(lambda: web.http._face.bodies.held) == 0


def test_who_is_not_known_is_refused_before_the_body_is_read(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS) as web, web.socket() as sock:
        sock.sendall(
            head("/topics/orders/a", {**STRUCTURED, "Content-Length": str(50 << 20), "Expect": "100-continue"})
        )
        assert answer(reply(sock)).problem == (401, "aclFail", "NOT_AUTHORIZED")


def test_a_client_that_asks_first_is_told_to_go_on(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS) as web, web.socket() as sock:
        headers = {**STRUCTURED, **basic("shop"), "Content-Length": str(len(EVENT)), "Expect": "100-continue"}
        sock.sendall(head("/topics/orders/a", headers))
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        sock.sendall(EVENT)
        assert answer(reply(sock)).json == {"topic": "orders/a", "offset": 0}


def test_a_batch_has_a_bound(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(max_events=3)) as web:
        batch = [an_event(number).to_json() for number in range(4)]
        assert web.ask("POST", "/topics/a", b"[" + b",".join(batch[:3]) + b"]", BATCHED).status == 200
        assert web.ask("POST", "/topics/a", b"[" + b",".join(batch) + b"]", BATCHED).problem == (413, "fail", "")


def test_one_topic_too_many_is_refused(shm_dir: Path) -> None:
    with Web(shm_dir, options=MeshOptions(max_topics=1)) as web:
        for _ in range(2):
            assert web.ask("POST", "/topics/a", an_event().to_json(), STRUCTURED).status == 200
        refused = web.ask("POST", "/topics/b", an_event().to_json(), STRUCTURED)
        assert refused.problem == (403, "aclFail", "UNAUTHORIZED_PUBLISH")


def test_all_bodies_together_have_a_bound(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(held_bytes=10_000)) as web, web.socket() as held, web.socket() as refused:
        for sock in (held, refused):
            sock.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": "20000"}))
        held.sendall(b" " * 8000)
        until(lambda: web.see(lambda: web.http._face.bodies.held) == 8000)
        refused.sendall(b" " * 8000)
        given = answer(reply(refused))
        assert given.problem == (503, "fail", "")
        assert given.headers["retry-after"]
        held.close()
        until(lambda: web.see(lambda: web.http._face.bodies.held) == 0)
        assert web.ask("POST", "/topics/a", an_event(data="x" * 9000).to_json(), STRUCTURED).status == 200


def test_a_filter_that_matches_too_much_is_refused(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(max_topics=3)) as web:
        for number in range(4):
            web.publish(f"t/{number}", an_event())
        assert web.ask("GET", "/topics/**").problem == (400, "fail", "")
        with web.subscribe("t/1?start=earliest") as reader:
            assert reader.ids(1) == ["e0"]


def test_a_head_that_does_not_end_is_refused(web: Web) -> None:
    with web.socket() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (70 << 10))
        assert answer(reply(sock)).problem == (400, "fail", "")
        assert drained(sock)


# Too slow


def test_a_body_that_comes_too_slowly_is_given_up(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(body_s=0.1)) as web, web.socket() as sock:
        sock.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": "1000"}) + b"{")
        given = answer(reply(sock))
        assert given.problem == (408, "fail", "")
        assert given.headers["connection"] == "close"
        assert drained(sock)
        assert web.see(lambda: (web.http._face.bodies.held, web.http._face._requests)) == (0, 0)


def test_bytes_that_drip_buy_no_time(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(body_s=0.2, body_rate=1000, idle_s=0.2)) as web:
        for begun in (head("/topics/a", {**STRUCTURED, "Content-Length": "1000"}), b"POST /"):
            with web.socket() as sock:
                sock.sendall(begun)
                with pytest.raises(OSError, match=r"reset|Broken|abort"):
                    until(lambda sock=sock: sock.send(b"x") == 0)  # type: ignore[misc]


def test_a_large_body_has_more_time(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(body_s=PATIENCE_S, body_rate=1)) as web, web.socket() as sock:
        body = an_event(data="x" * 100_000).to_json()
        sock.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": str(len(body))}))
        for at in range(0, len(body), 9000):
            sock.sendall(body[at : at + 9000])
        assert answer(reply(sock)).json == {"topic": "a", "offset": 0}


@pytest.mark.parametrize("sent", [b"", b"GET /he", head("/health", {}, "GET")])
def test_a_connection_without_a_request_is_closed(shm_dir: Path, sent: bytes) -> None:
    with Web(shm_dir, None, HttpOptions(idle_s=0.1)) as web, web.socket() as sock:
        sock.sendall(sent)
        assert drained(sock)
        until(lambda: not web.see(lambda: web.http._wires.state.connections))


def test_a_subscription_is_no_idle_connection(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(idle_s=0.05, heartbeat_s=0.05)) as web, web.subscribe("a") as reader:
        for _ in range(5):
            reader.block()
        web.publish("a", an_event(1))
        assert reader.ids(1) == ["e1"]


def test_who_does_not_read_its_answers_is_given_up(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(stall_s=0.1)) as web:
        for number in range(100):
            web.publish(f"{'t' * 200}/{number}", an_event())
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", web.port))
            sock.setblocking(False)
            request = head("/topics", {}, "GET")

            def gone() -> bool:
                try:
                    sock.send(request)
                except BlockingIOError:
                    pass
                except OSError:
                    return True
                return False

            until(gone)
        assert web.ask("GET", "/health").status == 200


# Too many


def test_requests_beyond_the_bound_are_told_to_come_again(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(max_requests=2)) as web, ExitStack() as stack:
        waiting = [stack.enter_context(web.socket()) for _ in range(2)]
        for number, sock in enumerate(waiting):
            body = an_event(number).to_json()
            sock.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": str(len(body))}) + body[:-1])
        until(lambda: web.see(lambda: web.http._face._requests) == 2)
        given = web.ask("POST", "/topics/a", EVENT, STRUCTURED)
        assert given.problem == (503, "fail", "")
        assert int(given.headers["retry-after"]) >= 1
        assert web.ask("GET", "/health").status == 200
        for sock in waiting:
            sock.sendall(b"}")
        assert sorted(answer(reply(sock)).json["offset"] for sock in waiting) == [0, 1]
        assert web.ask("POST", "/topics/a", an_event(7).to_json(), STRUCTURED).json["offset"] == 2


def test_subscriptions_beyond_the_bound_are_told_to_come_again(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(max_streams=2, heartbeat_s=0.05)) as web:
        readers = [web.subscribe("a") for _ in range(2)]
        assert web.ask("GET", "/topics/a").problem == (503, "fail", "")
        readers[0].close()
        until(lambda: web.ask("HEAD", "/topics/a").status == 200)
        readers[1].close()


def test_connections_beyond_the_bound_are_closed_and_the_others_live(shm_dir: Path) -> None:
    with Web(shm_dir, None, HttpOptions(max_connections=5)) as web, ExitStack() as stack:
        sockets = [stack.enter_context(web.socket()) for _ in range(5)]
        until(lambda: web.see(lambda: len(web.http._wires.state.connections)) == 5)
        with web.socket() as refused:
            assert drained(refused)
        sockets[0].sendall(head("/health", {}, "GET"))
        assert answer(reply(sockets[0])).status == 200


def test_a_client_that_publishes_too_often_is_told_when_to_come_again(shm_dir: Path) -> None:
    with Web(shm_dir, CLIENTS) as web:
        # A second's worth at once, and what is more is paid for afterwards: now it is 49 seconds.
        assert len(web.publish("a", *[an_event(number) for number in range(100)], who="slow")) == 100
        given = web.ask("POST", "/topics/a", an_event(100).to_json(), STRUCTURED, who="slow")
        assert given.problem == (429, "tpsOverload", "")
        assert 40 <= int(given.headers["retry-after"]) <= 50
        assert "2 publishes a second" in given.json["detail"]
        assert web.ask("POST", "/topics/orders/a", EVENT, STRUCTURED, who="shop").status == 200

        async def publish() -> tuple[int | None, str | None]:
            session = await Raw.connect(web.mesh_port)
            await session.hello("slow", password="secret", purpose=Purpose.PUBLISH)
            body = Publish("slow", session.session_id, "a", msgspec.Raw(an_event(101).encode()))
            said = await session.ask(Command.PUBLISH_MESSAGE_REQUEST, body)
            session.close()
            return said.status, said.description

        # Sessions of the client and its requests share the limit.
        status, description = web.run(publish)
        assert (status, "try again" in (description or "")) == (3, True)


# Not now


def test_a_full_disk_refuses_events_until_there_is_room(shm_dir: Path) -> None:
    disk = FaultyStorage()
    with Web(shm_dir, log_options=small(disk)) as web:
        web.publish("a", an_event(0))
        disk.fail["pwrite"] = (FOREVER, ENOSPC)
        given = web.ask("POST", "/topics/a", an_event(1).to_json(), STRUCTURED)
        assert given.problem == (503, "fail", "")
        assert "no room" in given.json["detail"]
        assert int(given.headers["retry-after"]) >= 1
        disk.fail.clear()
        assert web.publish("a", an_event(1)) == [1]
        with web.subscribe("a?start=earliest") as reader:
            assert reader.ids(2) == ["e0", "e1"]


def test_while_the_server_stops_nothing_new_is_taken_and_what_was_begun_is_answered(shm_dir: Path) -> None:
    with Web(shm_dir) as web, web.socket() as begun, web.socket() as idle, web.socket() as late:
        idle.sendall(head("/health", {}, "GET"))
        assert answer(reply(idle)).status == 200
        late.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": str(len(EVENT))})[:-4])
        begun.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": str(len(EVENT))}) + EVENT[:-1])
        until(lambda: web.see(lambda: web.http._face._requests) == 1)
        web.see(lambda: web._stop.set())
        assert drained(idle)
        begun.sendall(EVENT[-1:])
        assert answer(reply(begun)).json == {"topic": "a", "offset": 0}
        with pytest.raises(OSError, match="refused"), web.socket():
            pass


def test_requests_and_readers_that_do_not_end_do_not_keep_the_server_from_stopping(shm_dir: Path) -> None:
    with Web(shm_dir) as web, web.socket() as body, web.socket() as reader:
        for first in range(0, 100, 20):
            web.publish("big", *[an_event(number, data="x" * 100_000) for number in range(first, first + 20)])
        body.sendall(head("/topics/a", {**STRUCTURED, "Content-Length": "100"}))
        reader.sendall(head("/topics/big?start=earliest", {}, "GET"))
        until(lambda: web.see(lambda: web.http._face._requests == 1 and len(web.http._face._streams) == 1))
        web.run(lambda: web.http.close(0.05))
        assert web.see(lambda: (web.http._face._requests, web.http._face._streams)) == (0, set())
        assert drained(body)
        assert drained(reader)


def test_a_server_that_stops_says_so(web: Web) -> None:
    web.see(lambda: setattr(web.server.core, "stopping", True))
    given = web.ask("GET", "/health")
    assert (given.status, json.loads(given.body)) == (503, {"status": "stopping"})
    assert web.ask("POST", "/topics/a", EVENT, STRUCTURED).problem == (503, "fail", "")
    assert web.ask("GET", "/topics/a").problem == (503, "fail", "")


def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_behind(web: Web) -> None:
    async def again() -> None:
        await serve_http(web.server, "127.0.0.1", web.port)

    listeners = web.see(lambda: len(web.server.core.listeners))
    with pytest.raises(OSError, match="in use") as caught:
        web.run(again)
    assert not isinstance(caught.value, StorageError | BusyError)
    assert web.see(lambda: len(web.server.core.listeners)) == listeners


def test_no_handler_of_signals_is_left_or_changed(web: Web) -> None:
    # The server runs in a thread, where none could be set: here it is the main one that counts.
    async def serve() -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        async with await serve_http(web.server, "127.0.0.1", 0):
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    asyncio.run(serve())
