"""`pub` and `sub` without a server, `record` and `replay`: messages from process to process, over the data plane."""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import count as numbers
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from echomesh.cli.common import DirOption, JsonOption, Stop, hung_up, say, say_json, state, stoppable, warn
from echomesh.cli.participant import DomainOption, data_options
from echomesh.cli.text import plural
from echomesh.errors import NothingCame, StorageError
from echomesh.topics import parse_topic, quote_topic

if TYPE_CHECKING:
    from echomesh.data.incoming import Gap
    from echomesh.data.sync import Mesh
    from echomesh.native.data_message import Message

_LOOK_S: Final = 0.25
_AHEAD: Final = 256
_KINDS: Final = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n", "png"), (b"%PDF", "pdf"), (b"{", "json"), (b"[", "json"))


class Format(StrEnum):
    """How messages are printed."""

    TEXT = "text"
    HEX = "hex"
    JSON = "json"


PeerOption = Annotated[
    bool,
    typer.Option("--peer", "-p", help="Without a server: straight from process to process, as raw messages."),
]
EveryOption = Annotated[
    float | None,
    typer.Option(min=0.0001, metavar="SECONDS", help="With --peer: one each so many seconds.", show_default=False),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="With --peer: how messages are printed.", show_default="text")
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--to", metavar="DIR", help="With --peer: each message into a file there; JPEGs as such.", show_default=False
    ),
]


def _mesh() -> Mesh:
    from echomesh.data.sync import connect

    return connect()


# pub


def publish(
    topic: str, data: str | None, file: Path | None, count: int | None, every: float | None, wait: float, as_json: bool
) -> None:
    """Sends what the command line names to all who subscribe."""
    topic = parse_topic(topic)
    with stoppable() as stop, _mesh() as mesh:
        publisher = mesh.publisher(topic)
        with contextlib.suppress(NothingCame):
            publisher.matched(1, wait)
        due = time.monotonic()
        for body in _bodies(data, file, count, every):
            if stop.asked:
                break
            publisher.send(body)
            if every is not None:
                due += every
                _pause(stop, due)
        subscribers = publisher.statistics.subscribers
        publisher.close()
        sent = publisher.statistics.sent
    if as_json:
        say_json({"topic": topic, "sent": sent, "subscribers": subscribers})
    elif not subscribers:
        warn(f"{plural(sent, 'message')} sent, and nobody subscribes to {topic}", style="yellow")
    else:
        say(f"{plural(sent, 'message')} sent to {plural(subscribers, 'subscriber')} of {topic}")


def _bodies(data: str | None, file: Path | None, count: int | None, every: float | None) -> Iterator[bytes]:
    if data is not None or (file is not None and str(file) != "-"):
        body = data.encode() if data is not None else _whole(file)
        # One alone, so many, or, at a pace, until somebody stops it.
        yield from repeat(body) if count is None and every is not None else repeat(body, count or 1)
    elif count is not None:
        yield from (str(number).encode() for number in range(count))
    else:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")


def _whole(file: Path | None) -> bytes:
    assert file is not None
    try:
        return file.read_bytes()
    except OSError as error:
        raise StorageError(f"{file}: {error.strerror or error}") from None


def _pause(stop: Stop, due: float) -> None:
    while not stop.asked and (left := due - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_S))


# sub


def subscribe(filters: list[str], format: Format, to: Path | None, count: int | None) -> None:
    """Prints or saves messages as they come."""
    write = _saver(to) if to is not None else {Format.HEX: _hex, Format.JSON: _json}.get(format, _text)
    with stoppable() as stop, _mesh() as mesh:
        for _, message in zip(_some(count), _messages(mesh, filters, stop), strict=False):
            sys.stdout.buffer.write(write(message))
            sys.stdout.buffer.flush()


def _some(count: int | None) -> Iterable[int]:
    return numbers() if count is None else range(count)


def _messages(mesh: Mesh, filters: list[str], stop: Stop) -> Iterator[Message]:
    coming: queue.Queue[Message] = queue.Queue(_AHEAD)
    for filter in filters:
        mesh.subscribe(filter, coming.put, on_gap=_tell)
    while not stop.asked and not hung_up():
        with contextlib.suppress(queue.Empty):
            yield coming.get(timeout=_LOOK_S)


def _tell(gap: Gap) -> None:
    warn(f"lost: {gap.topic} {gap.first} to {gap.last}: {gap.reason}", style="yellow")


def _text(message: Message) -> bytes:
    body = bytes(message)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = f"{len(body)} bytes"
    shown = text if text.isprintable() else json.dumps(text, ensure_ascii=False)
    return f"{message.topic} {message.sequence}: {shown}\n".encode()


def _hex(message: Message) -> bytes:
    return f"{message.topic} {message.sequence}: {bytes(message).hex(' ')}\n".encode()


def _json(message: Message) -> bytes:
    facts: dict[str, Any] = {
        "topic": message.topic,
        "publisher": message.publisher.hex(),
        "sequence": message.sequence,
        "time": message.time,
    }
    body = bytes(message)
    try:
        facts["data"] = body.decode()
    except UnicodeDecodeError:
        facts["data_base64"] = base64.b64encode(body).decode()
    return json.dumps(facts).encode() + b"\n"


def _saver(directory: Path) -> Callable[[Message], bytes]:
    def save(message: Message) -> bytes:
        body = bytes(message)
        kind = next((kind for magic, kind in _KINDS if body.startswith(magic)), "bin")
        path = directory / quote_topic(message.topic) / f"{message.publisher.hex()[:8]}-{message.sequence}.{kind}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from None
        return f"{path}\n".encode()

    return save


# record and replay

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="An MCAP file.", show_default=False)]


def record(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="A topic, or a filter with * and **.")],
    file: FileArgument,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many.", show_default=False)
    ] = None,
    domain: DomainOption = None,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record messages of the data plane to a file in the MCAP format, until Ctrl-C."""
    from echomesh.data.recording import Recorder
    from echomesh.data.sync import Mesh

    state.json = as_json
    with Recorder(file) as recorder, stoppable() as stop, Mesh(data_options(domain, directory)) as mesh:
        if not as_json:
            warn(f"recording {filter} to {file}; Ctrl-C ends it")
        for _, message in zip(_some(count), _messages(mesh, [filter], stop), strict=False):
            recorder.add(message)
    if as_json:
        say_json({"file": str(file), "messages": recorder.count})
    else:
        say(f"{plural(recorder.count, 'message')} in {file}")


def replay(
    file: FileArgument,
    filter: Annotated[str, typer.Option(metavar="FILTER", help="Only these topics.")] = "**",
    speed: Annotated[float, typer.Option(min=0.0, help="2 is twice as fast as it was; 0 is as fast as it goes.")] = 1.0,
    wait: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="For a subscriber of each topic.")] = 1.0,
    domain: DomainOption = None,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish the messages of a recording again, at the pace at which they were sent."""
    from echomesh.data.recording import recorded
    from echomesh.data.sync import Mesh

    state.json = as_json
    sent = 0
    with stoppable() as stop, Mesh(data_options(domain, directory)) as mesh:
        publishers: dict[str, Any] = {}
        ahead_ns: int | None = None
        for message in recorded(file, filter):
            if stop.asked:
                break
            publisher = publishers.get(message.topic)
            if publisher is None:
                publisher = publishers[message.topic] = mesh.publisher(message.topic)
                with contextlib.suppress(NothingCame):
                    publisher.matched(1, wait)
                ahead_ns = None  # waiting is no part of the pace
            if speed:
                now_ns = time.monotonic_ns()
                if ahead_ns is None:
                    ahead_ns = now_ns - int(message.time_ns / speed)
                _pause(stop, (ahead_ns + int(message.time_ns / speed)) / 1e9)
            publisher.send(message.data)
            sent += 1
    if as_json:
        say_json({"file": str(file), "messages": sent, "topics": len(publishers)})
    else:
        say(f"{plural(sent, 'message')} of {plural(len(publishers), 'topic')} from {file}")
