"""Commands, statuses and errors of the EventMesh protocol."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

MAGIC: Final = "EventMesh"
VERSION: Final = "0000"
PORT: Final = 4889
ENVIRONMENTS: Final = ("TST", "VAL", "PRD")


class Command(IntEnum):
    """What a message wants or answers; answers follow their requests, and codes from 256 up are extensions."""

    HEARTBEAT_REQUEST = 0
    HEARTBEAT_RESPONSE = 1
    HELLO_REQUEST = 2
    HELLO_RESPONSE = 3
    SUBSCRIBE_REQUEST = 4
    SUBSCRIBE_RESPONSE = 5
    ASYNC_MESSAGE_TO_CLIENT = 6
    ASYNC_MESSAGE_TO_CLIENT_ACK = 7
    ADD_BRIDGE_REQUEST = 8
    ADD_BRIDGE_RESPONSE = 9
    ASYNC_MESSAGE_TO_SERVER = 10
    DISCONNECT_REQUEST = 11
    DISCONNECT_RESPONSE = 12
    ASYNC_MESSAGE_TO_CLIENT_ACK_RESPONSE = 13
    PUBLISH_MESSAGE_REQUEST = 14
    PUBLISH_MESSAGE_RESPONSE = 15

    UNSUBSCRIBE_REQUEST = 256
    UNSUBSCRIBE_RESPONSE = 257
    NACK_REQUEST = 258
    NACK_RESPONSE = 259
    TOPICS_REQUEST = 260
    TOPICS_RESPONSE = 261
    OFFSETS_REQUEST = 262
    OFFSETS_RESPONSE = 263
    FETCH_REQUEST = 264
    FETCH_RESPONSE = 265
    REMOVE_BRIDGE_REQUEST = 266
    REMOVE_BRIDGE_RESPONSE = 267
    BRIDGES_REQUEST = 268
    BRIDGES_RESPONSE = 269
    STAGE_REQUEST = 270
    STAGE_RESPONSE = 271
    COMMIT_REQUEST = 272
    COMMIT_RESPONSE = 273
    ABORT_REQUEST = 274
    ABORT_RESPONSE = 275
    NOTICE = 276
    ROUTES = 278


class Status(IntEnum):
    """How a request went."""

    SUCCESS = 0
    FAIL = 1
    ACL_FAIL = 2
    TPS_OVERLOAD = 3


DESCRIPTIONS: Final = {
    Status.SUCCESS: "success",
    Status.FAIL: "fail",
    Status.ACL_FAIL: "aclFail",
    Status.TPS_OVERLOAD: "tpsOverload",
}


class ErrorCode(StrEnum):
    """Why it did not go well; empty where the description alone says it."""

    NONE = ""
    NO_ACTIVE_SESSION = "NO_ACTIVE_SESSION"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    NO_BRIDGE_SERVER = "NO_BRIDGE_SERVER"
    INVALID_URL = "INVALID_URL"
    INVALID_CLIENT = "INVALID_CLIENT"
    INVALID_SEQ = "INVALID_SEQ"
    INVALID_BRIDGE = "INVALID_BRIDGE"
    BRIDGE_NOT_ACTIVE = "BRIDGE_NOT_ACTIVE"
    BRIDGE_EXISTS = "BRIDGE_EXISTS"
    UNKNOWN_BRIDGE = "UNKNOWN_BRIDGE"
    UNAUTHORIZED_PUBLISH = "UNAUTHORIZED_PUBLISH"
    UNAUTHORIZED_SUBSCRIBE = "UNAUTHORIZED_SUBSCRIBE"


class Purpose(IntEnum):
    """What a session is for."""

    SUBSCRIBE = 0
    PUBLISH = 1
