"""Publishers and subscribers for threads, over a real participant."""

from __future__ import annotations

import array
import gc
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

from echomesh import Event
from echomesh.data.outgoing import SMALL_BYTES
from echomesh.data.processes import leave
from echomesh.errors import (
    BadOptions,
    BadTopic,
    ClosedError,
    Forked,
    MessageTooLarge,
    NothingCame,
    UsageError,
    ViewKept,
)
from echomesh.sync import Mesh, connect
from tests.data import shm_workers
from tests.data.shm_support import gone, numbered, options_in
from tests.support.processes import process, until


def test_a_message_carries_topic_publisher_number_and_time(mesh: Mesh) -> None:
    subscriber = mesh.subscribe("camera/*")
    publisher = mesh.publisher("/camera/front")
    publisher.matched(1, 10)
    before = time.time()
    publisher.send(b"one")
    publisher.send(b"two")
    first, second = subscriber.receive(10), subscriber.receive(10)
    assert (bytes(first.data), bytes(second)) == (b"one", b"two")
    assert first.topic == "camera/front"
    assert first.publisher == publisher.id
    assert [first.sequence, second.sequence] == [0, 1]
    assert before - 1 <= first.time <= second.time <= time.time() + 1
    assert first.data.readonly
    assert subscriber.publishers == [publisher.id]
    assert publisher.subscribers == [subscriber.id]


PAYLOADS: dict[str, Any] = {
    "bytes": b"x" * 100,
    "empty": b"",
    "bytearray": bytearray(range(100)),
    "memoryview": memoryview(bytes(range(200)))[50:150],
    "array": array.array("d", [1.5, 2.5]),
    "numpy": numpy.arange(30, dtype=numpy.float32).reshape(5, 6),
    "arrow": pyarrow.py_buffer(b"arrow" * 20),
    "inline": bytes(112),
    "just not inline": bytes(113),
    "largest small": os.urandom(SMALL_BYTES),
    "smallest large": os.urandom(SMALL_BYTES + 1),
    "large numpy": numpy.arange(300_000, dtype=numpy.int64),
    "large arrow": pyarrow.py_buffer(os.urandom(1 << 20)),
}


def test_every_type_of_payload_arrives_as_its_bytes(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    for name, payload in PAYLOADS.items():
        publisher.send(payload)
        assert bytes(subscriber.receive(10)) == bytes(memoryview(payload).cast("B")), name
    publisher.send_many(PAYLOADS.values())
    got = [bytes(subscriber.receive(10)) for _ in PAYLOADS]
    assert got == [bytes(memoryview(payload).cast("B")) for payload in PAYLOADS.values()]
    assert publisher.statistics.sent == subscriber.statistics.delivered == 2 * len(PAYLOADS)
    assert publisher.statistics.bytes == subscriber.statistics.bytes


def test_an_event_is_sent_in_its_wire_encoding(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    event = Event(type="order.created", source="/shop", data={"id": 7})
    publisher.send(event)
    assert Event.decode(bytes(subscriber.receive(10))) == event


def test_what_is_no_buffer_is_refused(mesh: Mesh) -> None:
    publisher = mesh.publisher("t")
    with pytest.raises(UsageError, match="a str can't be sent"):
        publisher.send("text")
    with pytest.raises(UsageError, match="contiguous"):
        publisher.send(numpy.zeros((4, 4))[:, 1])
    assert publisher.statistics.sent == 0


def test_a_filter_gets_the_topics_that_it_matches(mesh: Mesh) -> None:
    one, any_depth = mesh.subscribe("a/*"), mesh.subscribe("a/**")
    publishers = [mesh.publisher(topic) for topic in ("a/b", "a/b/c", "b")]
    publishers[0].matched(2, 10)
    publishers[1].matched(1, 10)
    for publisher in publishers:
        publisher.send(publisher.topic.encode())
    assert one.receive(10).topic == "a/b"
    assert {any_depth.receive(10).topic for _ in range(2)} == {"a/b", "a/b/c"}
    with pytest.raises(NothingCame):
        one.receive(0.05)
    with pytest.raises(NothingCame):
        publishers[2].matched(1, 0.05)


def test_messages_between_processes_come_in_order_each_once(mesh: Mesh, options: dict[str, Any]) -> None:
    subscriber = mesh.subscribe("t")
    for size in (16, 3000, 100_000):
        with process(shm_workers.publish, options, "t", size, 3000, {}, 1):
            for number in range(3000):
                message = subscriber.receive(30)
                assert message.sequence == number
                assert bytes(message) == numbered(number, size)
        until(lambda: not subscriber.publishers)
    assert subscriber.statistics.gaps == 0


def test_a_large_message_is_not_copied_and_its_place_is_free_when_its_last_view_is_gone(mesh: Mesh) -> None:
    subscribers = [mesh.subscribe("t") for _ in range(3)]
    publisher = mesh.publisher("t")
    publisher.matched(3, 10)
    publisher.send(numbered(1, 1 << 20))
    messages = [subscriber.receive(10) for subscriber in subscribers]
    until(lambda: publisher.statistics.pool_slots == 1)
    views = [message.data[100:200] for message in messages]
    del messages
    gc.collect()
    assert publisher.statistics.pool_slots == 1
    assert all(bytes(view) == numbered(1, 1 << 20)[100:200] for view in views)
    array_ = numpy.frombuffer(views[0], dtype=numpy.uint8)
    views.clear()
    until(lambda: sum(len(line.ledger) for line in publisher.targets) == 1)
    del array_
    until(lambda: publisher.statistics.pool_slots == 0)


def test_the_same_place_of_the_pool_is_used_again(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    for number in range(200):
        publisher.send(numbered(number, 1 << 20))
        assert bytes(subscriber.receive(10).data[-8:]) == numbered(number, 1 << 20)[-8:]
    assert publisher.statistics.pool_bytes <= 8 << 20


def test_sizes_that_are_used_no_more_make_room_for_others(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t", pool=8 << 20)
    publisher.matched(1, 10)
    for size in (20_000, 300_000, 1 << 20, 5 << 20, 20_000, 8 << 20):
        for number in range(20):
            publisher.send(numbered(number, size))
            assert bytes(subscriber.receive(10)) == numbered(number, size)
    assert publisher.statistics.pool_bytes <= 8 << 20
    with pytest.raises(MessageTooLarge):
        publisher.send(bytes((8 << 20) + 1))
    with pytest.raises(MessageTooLarge):
        publisher.loan((8 << 20) + 1).__enter__()


def test_a_loan_is_written_in_place_and_sent_at_the_end_of_its_block(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    with publisher.loan(1 << 20) as frame:
        frame[:4] = b"head"
        frame[-4:] = b"tail"
    message = subscriber.receive(10)
    assert (bytes(message.data[:4]), bytes(message.data[-4:]), len(message)) == (b"head", b"tail", 1 << 20)
    with pytest.raises(ZeroDivisionError), publisher.loan(100):
        raise ZeroDivisionError
    with pytest.raises(ViewKept), publisher.loan(100) as frame:
        kept = frame[:10]
    del kept, message
    until(lambda: publisher.statistics.pool_slots == 0)
    assert publisher.statistics.sent == 1


def test_a_callback_is_called_with_each_message(mesh: Mesh) -> None:
    got: list[bytes] = []

    def callback(message: object) -> None:
        got.append(bytes(message))  # type: ignore[call-overload]
        if len(got) == 1:
            raise RuntimeError("the user's mistake")

    mesh.subscribe("t", callback)
    publisher = mesh.publisher("t")
    publisher.matched(1, 10)
    publisher.send_many([b"one", b"two", b"three"])
    until(lambda: got == [b"one", b"two", b"three"])


def test_iterating_ends_when_the_process_leaves_before_the_subscriber_is_closed(shm_dir: Path) -> None:
    options = options_in(shm_dir)
    mesh = connect(**options)
    process, subscriber = mesh._joined(), mesh.subscribe("t")
    ended: list[list[object]] = []
    thread = threading.Thread(target=lambda: ended.append(list(subscriber)))
    thread.start()
    until(lambda: process.sleepers > 0)
    leave(process)
    thread.join(10)
    assert ended == [[]]
    with pytest.raises(ClosedError):
        subscriber.receive(0.1)
    mesh.close()
    gone(options)


def test_many_threads_share_a_publisher_and_nothing_is_lost(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t", queue=50), mesh.publisher("t")
    publisher.matched(1, 10)

    def send(thread: int) -> None:
        for number in range(1000):
            publisher.send(bytes([thread]) * (10 if number % 10 else 20_000))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    got = [subscriber.receive(30) for _ in range(4000)]
    assert [message.sequence for message in got] == list(range(4000))
    assert sorted(message.data[0] for message in got) == [thread for thread in range(4) for _ in range(1000)]
    for joined in threads:
        joined.join()


def test_two_threads_wait_for_two_subscribers(mesh: Mesh, options: dict[str, Any]) -> None:
    counts = {"a": 0, "b": 0}

    def take(topic: str) -> None:
        with connect(**options) as mine:
            for message in mine.subscribe(topic):
                counts[topic] += 1
                if bytes(message) == b"end":
                    return

    threads = [threading.Thread(target=take, args=(topic,)) for topic in counts]
    for thread in threads:
        thread.start()
    publishers = [mesh.publisher(topic) for topic in counts]
    for publisher in publishers:
        publisher.matched(1, 10)
    for number in range(500):
        publishers[number % 2].send(b"x")
        if number % 50 == 0:
            time.sleep(0.001)
    for publisher in publishers:
        publisher.send(b"end")
    for thread in threads:
        thread.join(30)
    assert counts == {"a": 251, "b": 251}


def test_a_thread_that_waits_lets_the_one_that_reads_go_on(mesh: Mesh) -> None:
    subscriber = mesh.subscribe("t")
    publisher = mesh.publisher("t")
    publisher.matched(1, 10)
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(bytes(subscriber.receive(10))), daemon=True)
    waiting.start()
    with publisher._process.streams():  # this thread has the rings now, and what comes waits in them
        publisher.send(b"one")
        time.sleep(0.1)  # after which it needs the GIL again
        assert not got
    waiting.join(10)
    assert got == [b"one"]


def test_history_comes_first_for_who_joins_later(mesh: Mesh) -> None:
    publisher = mesh.publisher("t", history=3)
    for number in range(10):
        publisher.send(numbered(number, 8 if number % 2 else 20_000))
    subscriber = mesh.subscribe("t")
    publisher.matched(1, 10)
    publisher.send(numbered(10, 8))
    got = [subscriber.receive(10) for _ in range(4)]
    assert [message.sequence for message in got] == [7, 8, 9, 10]
    assert [bytes(message)[:8] for message in got] == [numbered(number, 8) for number in (7, 8, 9, 10)]
    late = mesh.subscribe("t")
    assert [late.receive(10).sequence for _ in range(3)] == [8, 9, 10]


def test_flush_waits_until_every_process_has_what_was_sent(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    publisher.send_many([b"x"] * 500)
    publisher.flush(10)
    assert subscriber.waiting == 500


def test_closed_handles_say_so(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    subscriber.close()
    with pytest.raises(ClosedError):
        subscriber.receive(1)
    assert list(subscriber) == []
    until(lambda: publisher.statistics.subscribers == 0)
    publisher.close()
    with pytest.raises(ClosedError):
        publisher.send(b"x")
    mesh.close()
    with pytest.raises(ClosedError):
        mesh.publisher("t")


def test_what_a_closed_publisher_sent_can_still_be_taken(mesh: Mesh, options: dict[str, Any]) -> None:
    subscriber = mesh.subscribe("t")
    with connect(**options) as other, other.publisher("t") as publisher:
        publisher.matched(1, 10)
        publisher.send(b"small")
        publisher.send(bytes(1 << 20))
    assert [len(subscriber.receive(10)) for _ in range(2)] == [5, 1 << 20]


def test_what_was_sent_arrives_though_its_process_ends_without_closing(mesh: Mesh) -> None:
    subscriber = mesh.subscribe("t")
    script = "from echomesh.sync import connect\nfrom pathlib import Path\n"
    script += f"publisher = connect(**{_plain(mesh.options.to_dict())}).publisher('t')\n"
    script += "publisher.matched(1, 30)\npublisher.send(bytes(1 << 20))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(subscriber.receive(10)) == 1 << 20
    until(lambda: not subscriber.publishers)


def _plain(options: dict[str, Any]) -> str:
    given = ", ".join(f"{name!r}: {value!r}" for name, value in options.items() if name not in ("directory", "peers"))
    return f"{{{given}, 'directory': Path({options['directory']!r})}}"


@pytest.mark.parametrize(
    "choices",
    [{"slow": "ignore"}, {"reliability": "maybe"}, {"queue": 0}, {"history": -1}, {"timeout": -1}, {"pool": 1}],
    ids=str,
)
def test_choices_that_can_not_be_are_refused(mesh: Mesh, choices: dict[str, object]) -> None:
    with pytest.raises(BadOptions):
        mesh.publisher("t", **choices)


def test_bad_topics_are_refused(mesh: Mesh) -> None:
    with pytest.raises(BadTopic):
        mesh.publisher("a/*")
    with pytest.raises(BadTopic):
        mesh.subscribe("a//b")


def test_after_a_fork_the_childs_handles_raise_and_the_parents_go_on(mesh: Mesh) -> None:
    subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
    publisher.matched(1, 10)
    publisher.send(bytes(1 << 20))
    held = subscriber.receive(10)
    shared = mmap.mmap(-1, 64)
    if not (child := os.fork()):
        try:
            del held
            errors = 0
            for act in (lambda: publisher.send(b"x"), lambda: subscriber.receive(1), lambda: mesh.subscribe("u")):
                try:
                    act()
                except Forked:
                    errors += 1
            mesh.close()
            shared[0] = errors
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert shared[0] == 3
    assert publisher.statistics.pool_slots == 1
    assert len(held) == 1 << 20
    publisher.send(b"after")
    assert bytes(subscriber.receive(10)) == b"after"


def test_the_last_one_takes_all_files_with_it(shm_dir: Path) -> None:
    options = options_in(shm_dir)
    with connect(**options) as mesh:
        subscriber, publisher = mesh.subscribe("t"), mesh.publisher("t")
        publisher.matched(1, 10)
        publisher.send(bytes(1 << 20))
        subscriber.receive(10)
    gone(options)
    assert list(shm_dir.iterdir()) == []
