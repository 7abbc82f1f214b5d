"""Sessions without async, against a real server in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import echomesh
from echomesh import Event, errors
from echomesh.mesh.sync import Received, Session, Subscription, session
from tests.mesh.support import Running, an_event, serving
from tests.support.repository import ROOT


class Apart:
    """A server in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started = threading.Event()
        self.running: Running | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()))
        self.thread.start()
        assert self.started.wait(20)

    async def serve(self) -> None:
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self.directory) as self.running:
            self.started.set()
            await self.over.wait()

    @property
    def port(self) -> int:
        assert self.running is not None
        return self.running.port

    def stop(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(20)


@pytest.fixture
def port(shm_dir: Path) -> Iterator[int]:
    server = Apart(shm_dir)
    yield server.port
    server.stop()


@pytest.fixture
def shop(port: int) -> Iterator[Session]:
    with session(f"127.0.0.1:{port}", client_id="shop") as made:
        yield made


def some(subscription: Subscription, number: int) -> list[Received]:
    return [subscription.get(20) for _ in range(number)]


def ids(received: list[Received]) -> list[str]:
    return [found.id for found in received]


def test_publishing_one_many_and_without_waiting(port: int) -> None:
    with echomesh.sync.session(f"127.0.0.1:{port}", client_id="shop") as shop:
        assert shop.publish("a", Event(type="t", source="/s", id="e0")) == 0
        assert shop.publish_many("a", (an_event(at) for at in range(1, 100))) == list(range(1, 100))
        pending = [shop.publish_soon("a", an_event(at).encode()) for at in range(100, 20_000)]
        assert [each.result(20) for each in pending] == list(range(100, 20_000))
        late = shop.publish_soon("a", an_event(20_000))
    assert late.done()
    assert late.result() == 20_000


def test_threads_share_a_session(shop: Session) -> None:
    def publish(first: int) -> None:
        for at in range(first, first + 20):
            shop.publish("a", an_event(at))
            shop.publish_soon("b", an_event(at))

    threads = [threading.Thread(target=publish, args=(at * 20,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.offsets("a").latest == 80


def test_errors_are_the_same(shop: Session) -> None:
    with pytest.raises(errors.RequestFailed):
        shop.publish("a", b"\x80")
    with pytest.raises(errors.RequestFailed):
        shop.publish_soon("a", b"\x80").result(20)
    with pytest.raises(errors.FrameTooLarge):
        shop.publish_soon("a", b"x" * (65 << 20)).result(20)
    with pytest.raises(errors.BadTopic):
        shop.subscribe("a*")
    with pytest.raises(errors.NoBridgeServer):
        shop.publish("a", an_event(0), server="elsewhere:1")
    with pytest.raises(errors.RequestFailed, match="Start"):
        shop.subscribe("a", start="yesterday")


def test_an_answer_that_does_not_come_in_time_is_told() -> None:
    with session("127.0.0.1:1", client_id="shop", connect_timeout=0.3) as shop:
        pending = shop.publish_soon("a", an_event(0))
        with pytest.raises(errors.MeshTimeout):
            pending.result(0.01)
        with pytest.raises(errors.ConnectionLost):
            pending.result(20)


def test_a_subscription_is_there_when_subscribe_returns(shop: Session) -> None:
    subscription = shop.subscribe("orders/**")
    shop.publish_many("orders/a", [an_event(at) for at in range(100)])
    seen = []
    for found in subscription:
        seen.append(found.id)
        if len(seen) == 100:
            break
    assert seen == [f"e{at}" for at in range(100)]
    with pytest.raises(errors.MeshTimeout):
        subscription.get(0.01)


def test_acknowledgements_hold_over_sessions(shop: Session) -> None:
    with shop.subscribe("a", start="earliest") as subscription:
        shop.publish_many("a", [an_event(at) for at in range(5)])
        assert ids(some(subscription, 3)) == ["e0", "e1", "e2"]
    with shop.subscribe("a", ack="manual") as subscription:
        found = some(subscription, 3)
        assert ids(found) == ["e2", "e3", "e4"]
        found[1].ack()
        found[0].ack()
    with shop.subscribe("a") as subscription:
        assert ids(some(subscription, 1)) == ["e4"]


def test_a_nack_brings_the_event_again(shop: Session) -> None:
    with shop.subscribe("a", ack="manual", start="earliest") as subscription:
        shop.publish("a", an_event(0))
        assert some(subscription, 1)[0].nack(0.001, "no") is False
        (again,) = some(subscription, 1)
        assert (again.id, again.tries) == ("e0", 2)


def test_iterating_ends_when_the_subscription_is_closed(shop: Session) -> None:
    subscription = shop.subscribe("a")
    closing = threading.Timer(0.05, subscription.close)
    closing.start()
    assert list(subscription) == []
    closing.join()
    with pytest.raises(errors.ClosedError):
        subscription.get(1)
    again = shop.subscribe("a")
    again.unsubscribe()
    assert list(again) == []


def test_asking_and_answering(port: int, shop: Session) -> None:
    with session(f"127.0.0.1:{port}", client_id="other") as other:
        questions = other.subscribe("ask")

        def answer() -> None:
            for question in questions:
                other.reply(question, Event(type="a", source="/other", data=question.data * 2))
                return

        thread = threading.Thread(target=answer)
        thread.start()
        assert shop.request("ask", Event(type="q", source="/shop", data=21), timeout=20).data == 42
        thread.join()


def test_the_log_stages_and_bridges(shop: Session) -> None:
    shop.publish("a", an_event(0))
    assert [each.topic for each in shop.topics()] == ["a"]
    assert shop.fetch("a", 0).next_offset == 1
    stage = shop.stage("w", 1, "r")
    stage.add("b", an_event(1))
    assert shop.commit("w", 1, "r", [stage.close().stage]).rows == 1
    shop.abort("w", 2)
    assert shop.bridges() == []
    with pytest.raises(errors.InvalidBridge):
        shop.add_bridge("127.0.0.1:9")
    with pytest.raises(errors.UnknownBridge):
        shop.remove_bridge("127.0.0.1:9")


def test_ctrl_c_ends_a_wait_and_leaves_the_session_usable(shop: Session) -> None:
    subscription = shop.subscribe("a")
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(subscription)
    timer.join()
    shop.publish("a", an_event(0))
    assert ids(some(subscription, 1)) == ["e0"]


def test_a_callback_that_would_wait_for_itself_is_told(shop: Session) -> None:
    async def callback() -> None:
        shop.publish("a", an_event(0))

    with pytest.raises(errors.UsageError, match="another thread"):
        shop._background.run(callback())


def test_a_forked_process_is_told_and_makes_sessions_of_its_own(port: int) -> None:
    code = f"""
import os, echomesh
from echomesh import Event, errors
shop = echomesh.sync.session("127.0.0.1:{port}", client_id="shop")
assert shop.publish("a", Event(type="t", source="/s", id="1")) == 0
subscription = shop.subscribe("a")
child = os.fork()
if child == 0:
    status = 1
    try:
        for wrong in (lambda: shop.publish("a", Event(type="t", source="/s")), lambda: subscription.get(1), shop.close):
            try:
                wrong()
            except errors.ClosedError as error:
                assert "fork" in str(error)
            else:
                raise AssertionError
        with echomesh.sync.session("127.0.0.1:{port}", client_id="child") as mine:
            assert mine.publish("a", Event(type="t", source="/s", id="2")) == 1
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert shop.publish("a", Event(type="t", source="/s", id="3")) == 2
assert [subscription.get(20).id for _ in range(2)] == ["2", "3"]
shop.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_never_closes_its_session_ends_all_the_same(port: int) -> None:
    code = f"""
import echomesh
shop = echomesh.sync.session("127.0.0.1:{port}", client_id="shop")
subscription = shop.subscribe("a")
print(shop.publish("a", echomesh.Event(type="t", source="/s")))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
