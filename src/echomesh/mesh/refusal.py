"""How the core says no."""

from __future__ import annotations

from typing import Final

from echomesh.mesh.codes import ErrorCode, Status

MOST_NAME_BYTES: Final = 255  # of a client id, a group, a writer


class Refusal(Exception):
    """A request that is answered with a status other than success; the connection lives on."""

    def __init__(self, status: Status, error: ErrorCode, description: str) -> None:
        self.status = status
        self.error = error
        self.description = description
        super().__init__(description)


def failed(description: str, error: ErrorCode = ErrorCode.NONE) -> Refusal:
    """Status fail."""
    return Refusal(Status.FAIL, error, description)


def forbidden(description: str, error: ErrorCode) -> Refusal:
    """Status aclFail."""
    return Refusal(Status.ACL_FAIL, error, description)
