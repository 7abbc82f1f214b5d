"""What other processes do in the tests of publishers and subscribers."""

from __future__ import annotations

import faulthandler
import json
from pathlib import Path
from typing import Any

from echomesh.sync import connect
from tests.data.shm_support import numbered

END = b"the end"


def tell(path: str, text: str) -> None:
    """Leaves a word in a file that is whole once it is there."""
    Path(path + ".new").write_text(text)
    Path(path + ".new").rename(path)


def publish(options: dict[str, Any], topic: str, size: int, count: int, choices: dict[str, Any], matched: int) -> None:
    """Sends numbered messages to so many subscribers."""
    faulthandler.enable()
    with connect(**options) as mesh:
        publisher = mesh.publisher(topic, **choices)
        publisher.matched(matched)
        for number in range(count):
            publisher.send(numbered(number, size))


def publish_for_ever(options: dict[str, Any], topic: str, sizes: list[int]) -> None:
    """Sends numbered messages of these sizes in turn, until it is killed."""
    faulthandler.enable()
    mesh = connect(**options)
    publisher = mesh.publisher(topic)
    number = 0
    while True:
        publisher.send(numbered(number, sizes[number % len(sizes)]))
        number += 1


def take(options: dict[str, Any], filter: str, count: int, told: str) -> None:
    """Takes so many messages, and leaves a file that says which were not as they should be."""
    faulthandler.enable()
    with connect(**options) as mesh:
        wrong = []
        subscriber = mesh.subscribe(filter)
        tell(told + ".ready", "")
        for number in range(count):
            message = subscriber.receive()
            if message.sequence != number or bytes(message) != numbered(number, len(message)):
                wrong.append(number)
        tell(told, repr(wrong))


def take_for_ever(options: dict[str, Any], filter: str, told: str = "") -> None:
    """Takes messages until it is killed, and keeps some of them for a while."""
    faulthandler.enable()
    mesh = connect(**options)
    subscriber = mesh.subscribe(filter)
    if told:
        tell(told, "")
    kept: list[memoryview] = []
    for message in subscriber:
        kept = [*kept[-3:], message.data]


def take_until_end(options: dict[str, Any], filter: str, queue: int, told: str) -> None:
    """Takes messages up to one that says so, and leaves a file with the numbers that came and those that did not."""
    faulthandler.enable()
    with connect(**options) as mesh:
        came: list[int] = []
        lost: list[tuple[int, int, str]] = []
        subscriber = mesh.subscribe(
            filter, queue=queue, on_gap=lambda gap: lost.append((gap.first, gap.last, gap.reason))
        )
        tell(told + ".ready", "")
        for message in subscriber:
            if bytes(message) == END:
                break
            assert bytes(message) == numbered(message.sequence, len(message))
            came.append(message.sequence)
        tell(told, json.dumps({"came": came, "lost": lost, "end": message.sequence}))


def answer(options: dict[str, Any], topic: str) -> None:
    """Answers each request with its own bytes, turned around."""
    faulthandler.enable()
    mesh = connect(**options)
    for message in mesh.subscribe(topic):
        message.reply(bytes(message)[::-1])
