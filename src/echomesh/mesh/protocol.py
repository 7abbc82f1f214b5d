"""Messages to bytes and back.

A message on the wire is a length and one MessagePack array of eight fields; `frames` splits and joins those.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from echomesh.errors import BadMessage
from echomesh.mesh.bodies import (
    Abort,
    Ack,
    AddBridge,
    AskTicket,
    Body,
    Bridges,
    Commit,
    CommittedStages,
    Deliver,
    Disconnect,
    Forward,
    Hello,
    InSession,
    Nack,
    Nacked,
    Notice,
    Publish,
    Published,
    RemoveBridge,
    Routes,
    Stage,
    Staged,
    Subscribe,
    Ticket,
    Unsubscribe,
    Welcome,
)
from echomesh.mesh.codes import DESCRIPTIONS, MAGIC, VERSION, Command, ErrorCode, Status
from echomesh.mesh.log_bodies import AskOffsets, AskTopics, Fetch, Fetched, Offsets, Topics
from echomesh.native.mesh_frames import events_at


class Message(Struct, array_like=True, gc=False):
    """One message, its body not looked at yet."""

    magic: str
    version: str
    command: int
    status: int | None
    description: str | None
    error: str | None
    seq: str
    body: Raw = Raw(b"\xc0")

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body)


class Carrier(Message, array_like=True, gc=False, kw_only=True):
    """A message with so many events that they are gone through once only, by who takes them: its body has none."""

    events: memoryview

    @property
    def size(self) -> int:
        """Bytes of its body and events."""
        return len(self.body) + len(self.events)


BODIES: Final[dict[Command, type[Body] | None]] = {
    Command.HEARTBEAT_REQUEST: None,
    Command.HEARTBEAT_RESPONSE: None,
    Command.HELLO_REQUEST: Hello,
    Command.HELLO_RESPONSE: Welcome,
    Command.SUBSCRIBE_REQUEST: Subscribe,
    Command.SUBSCRIBE_RESPONSE: None,
    Command.ASYNC_MESSAGE_TO_CLIENT: Deliver,
    Command.ASYNC_MESSAGE_TO_CLIENT_ACK: Ack,
    Command.ADD_BRIDGE_REQUEST: AddBridge,
    Command.ADD_BRIDGE_RESPONSE: None,
    Command.ASYNC_MESSAGE_TO_SERVER: Forward,
    Command.DISCONNECT_REQUEST: Disconnect,
    Command.DISCONNECT_RESPONSE: None,
    Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE: None,
    Command.PUBLISH_MESSAGE_REQUEST: Publish,
    Command.PUBLISH_MESSAGE_RESPONSE: Published,
    Command.UNSUBSCRIBE_REQUEST: Unsubscribe,
    Command.UNSUBSCRIBE_RESPONSE: None,
    Command.NACK_REQUEST: Nack,
    Command.NACK_RESPONSE: Nacked,
    Command.TOPICS_REQUEST: AskTopics,
    Command.TOPICS_RESPONSE: Topics,
    Command.OFFSETS_REQUEST: AskOffsets,
    Command.OFFSETS_RESPONSE: Offsets,
    Command.FETCH_REQUEST: Fetch,
    Command.FETCH_RESPONSE: Fetched,
    Command.REMOVE_BRIDGE_REQUEST: RemoveBridge,
    Command.REMOVE_BRIDGE_RESPONSE: None,
    Command.BRIDGES_REQUEST: InSession,
    Command.BRIDGES_RESPONSE: Bridges,
    Command.STAGE_REQUEST: Stage,
    Command.STAGE_RESPONSE: Staged,
    Command.COMMIT_REQUEST: Commit,
    Command.COMMIT_RESPONSE: CommittedStages,
    Command.ABORT_REQUEST: Abort,
    Command.ABORT_RESPONSE: None,
    Command.NOTICE: Notice,
    Command.ROUTES: Routes,
    Command.TICKET_REQUEST: AskTicket,
    Command.TICKET_RESPONSE: Ticket,
}

LARGE_BYTES: Final = 16 << 10  # a message that may be a carrier
_NO_EVENTS: Final = b"\x90"
_COMMANDS: Final = {int(command): command for command in Command}
_decode_message: Final = msgspec.msgpack.Decoder(Message).decode
_decode_body: Final = {
    command: msgspec.msgpack.Decoder(body).decode for command, body in BODIES.items() if body is not None
}
_MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
encode_value: Final = msgspec.msgpack.Encoder().encode
# Messages that succeed, as arrays of eight, up to their seq.
_BEGINS: Final = {
    command: b"\x98" + encode_value((MAGIC, VERSION, int(command), 0, "success", ""))[1:] for command in Command
}


def decode(payload: bytes | bytearray | memoryview) -> Message:
    """The message in the payload of a frame; `BadMessage` for anything else. Its body is still raw."""
    at = events_at(payload, Command.ASYNC_MESSAGE_TO_SERVER) if len(payload) >= LARGE_BYTES else 0
    try:
        message = _decode_message(bytes(payload[:at]) + _NO_EVENTS if at else payload)
    except _MALFORMED as error:
        raise BadMessage(f"no EventMesh message: {error}") from None
    if message.magic != MAGIC:
        raise BadMessage(f"the magic value is {MAGIC!r}, not {message.magic[:40]!r}", message.seq)
    if message.version != VERSION:
        raise BadMessage(f"the protocol version is {VERSION!r}, not {message.version[:40]!r}", message.seq)
    if message.command not in _COMMANDS:
        raise BadMessage(f"{message.command} is no command of version {VERSION}", message.seq)
    return Carrier(*astuple(message), events=memoryview(payload)[at:]) if at else message


def body_of(message: Message) -> Any:
    """The body in the form of the message's command; None where the command has none. `BadMessage` if it is not so."""
    command = _COMMANDS[message.command]
    decode_body = _decode_body.get(command)
    if decode_body is None:
        return None
    try:
        body = decode_body(message.body)
    except _MALFORMED as error:
        raise BadMessage(f"the body of {command.name}: {error}", message.seq) from None
    if isinstance(message, Carrier) and isinstance(body, Forward):
        body.cloud_events = Raw(message.events)
    return body


def encode(
    command: Command,
    seq: str,
    body: Body | None = None,
    *,
    status: Status = Status.SUCCESS,
    description: str | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> bytes:
    """The payload of a frame."""
    told = DESCRIPTIONS[status] if description is None else description
    return encode_value((MAGIC, VERSION, int(command), int(status), told, str(error), seq, body))


def events_head(command: Command, seq: str, entries: dict[str, object]) -> bytes:
    """A message whose body has these entries (at most 14) and `CloudEvents`, up to where those begin."""
    body = encode_value(entries)
    # The map is small: one byte says how many entries it has.
    return b"".join((_BEGINS[command], encode_value(seq), bytes((body[0] + 1,)), body[1:]))


def parts(command: Command, seq: str, body: Body) -> tuple[bytes | memoryview, ...]:
    """The payload of a request in parts that follow each other: records are too many to be copied into it."""
    if not isinstance(body, Stage) or not body.records:
        return (encode(command, seq, body),)
    whole = encode(command, seq, msgspec.structs.replace(body, records=b""))
    # It ends with a bin of no bytes; the form for the largest ones serves for all.
    return whole[:-2] + b"\xc6" + len(body.records).to_bytes(4, "big"), body.records


def fetched_head(
    seq: str, log_id: bytes, offset: int, next_offset: int, size: int, stage: tuple[int, int] | None = None
) -> bytes:
    """The answer to a fetch, up to where its records begin, which have so many bytes: they are not copied into it.

    With `stage`, the shift and the time of rows of a stage.
    """
    entries: dict[str, object] = {"LogId": log_id, "Offset": offset, "NextOffset": next_offset}
    if stage is not None:
        entries |= {"Shift": stage[0], "Time": stage[1]}
    told = encode_value(entries | {"Records": b""})
    # It ends with a bin of no bytes; the form for the largest ones serves for all.
    return b"".join((_BEGINS[Command.FETCH_RESPONSE], encode_value(seq), told[:-2], b"\xc6", size.to_bytes(4, "big")))


def published(seq: str, offset: object) -> bytes:
    """The payload of the answer to a publish, which is sent more often than any other."""
    return encode_value((MAGIC, VERSION, 15, 0, "success", "", seq, {"Offset": offset}))


def answer_to(command: int) -> Command:
    """The command that answers a request; HEARTBEAT_RESPONSE for what is none of its own."""
    if command == Command.ASYNC_MESSAGE_TO_CLIENT_ACK:
        return Command.ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE
    if command == Command.ASYNC_MESSAGE_TO_SERVER:
        return Command.ASYNC_MESSAGE_TO_CLIENT_ACK
    following = _COMMANDS.get(command + 1)
    if following is not None and following.name.endswith("RESPONSE"):
        return following
    return Command.HEARTBEAT_RESPONSE
