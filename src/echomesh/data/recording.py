"""Messages in a file, in the MCAP format that robotics tools read, and back again at the pace at which they came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

from echomesh._version import __version__
from echomesh.errors import BadRecording, MissingPackage, StorageError
from echomesh.native.data_message import Message
from echomesh.topics import matches

if TYPE_CHECKING:
    from mcap.writer import Writer

ENCODING: Final = "application/octet-stream"
_NO_SCHEMA: Final = 0
_SEQUENCE_BITS: Final = 0xFFFFFFFF  # the format has no room for more; order is by time


class Recorder:
    """Writes messages to a file; what was written is whole once it is closed.

    with Recorder(Path("drive.mcap")) as recorder:
        for message in mesh.subscribe("camera/**"):
            recorder.add(message)
    """

    def __init__(self, path: Path) -> None:
        try:
            from mcap.writer import Writer
        except ModuleNotFoundError:
            raise MissingPackage("mcap", "record and replay") from None
        try:
            self._file: IO[bytes] = path.open("wb")
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or "can't be written", str(path)) from None
        self.count = 0
        """Messages that were written."""
        self._writer: Writer = Writer(self._file)
        self._writer.start(profile="", library=f"echomesh {__version__}")
        self._channels: dict[tuple[str, bytes], int] = {}

    def add(self, message: Message) -> None:
        """Writes one message; each publisher of each topic has a channel of its own."""
        key = message.topic, message.publisher
        channel = self._channels.get(key)
        if channel is None:
            metadata = {"publisher": message.publisher.hex()}
            channel = self._writer.register_channel(message.topic, ENCODING, _NO_SCHEMA, metadata)
            self._channels[key] = channel
        self._writer.add_message(
            channel,
            log_time=time.time_ns(),
            data=bytes(message),
            publish_time=message.time_ns,
            sequence=message.sequence & _SEQUENCE_BITS,
        )
        self.count += 1

    def close(self) -> None:
        """Writes the index, without which a file is only half as useful."""
        self._writer.finish()  # type: ignore[no-untyped-call]  # mcap has no type for it
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Recorded(NamedTuple):
    """A message of a file."""

    topic: str
    data: bytes
    time_ns: int
    """When it was sent."""
    sequence: int


def recorded(path: Path, filter: str = "**") -> Iterator[Recorded]:
    """The messages of a file that match a filter, in the order in which they came; files of others' work too."""
    try:
        from mcap.exceptions import McapError
        from mcap.reader import make_reader
    except ModuleNotFoundError:
        raise MissingPackage("mcap", "record and replay") from None
    try:
        file = path.open("rb")
    except OSError as error:
        raise StorageError(error.errno or 0, error.strerror or "can't be read", str(path)) from None
    with file:
        wanted: dict[str, bool] = {}
        try:
            for _, channel, message in make_reader(file).iter_messages():
                topic = channel.topic.strip("/")
                if topic not in wanted:
                    wanted[topic] = matches(filter, topic)
                if wanted[topic]:
                    yield Recorded(topic, message.data, message.publish_time, message.sequence)
        except McapError as error:
            raise BadRecording(str(path), _said(error)) from None


def _said(error: Any) -> str:
    return str(error) or type(error).__name__
