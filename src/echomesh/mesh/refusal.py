"""How the core says no."""

from __future__ import annotations

from typing import Final

from echomesh.errors import FencedWriter, StageMissing, StaleWriter
from echomesh.mesh.codes import ErrorCode, Status

MOST_NAME_BYTES: Final = 255  # of a client id, a group, a writer


class Refusal(Exception):
    """A request that is answered with a status other than success; the connection lives on."""

    def __init__(self, status: Status, error: ErrorCode, description: str, figures: tuple[int | str, ...] = ()) -> None:
        self.status = status
        self.error = error
        self.description = description
        self.figures = figures
        super().__init__(description)


def failed(description: str, error: ErrorCode = ErrorCode.NONE) -> Refusal:
    """Status fail."""
    return Refusal(Status.FAIL, error, description)


def forbidden(description: str, error: ErrorCode) -> Refusal:
    """Status aclFail."""
    return Refusal(Status.ACL_FAIL, error, description)


def refused_by(error: Exception) -> Refusal:
    """Status fail, for an error of ours; those that a program deals with have a code, and their figures."""
    if isinstance(error, StaleWriter):
        figures = (error.writer, error.epoch, error.last_epoch)
        return Refusal(Status.FAIL, ErrorCode.STALE_WRITER, str(error), figures)
    if isinstance(error, FencedWriter):
        return Refusal(Status.FAIL, ErrorCode.FENCED_WRITER, str(error), (error.writer, error.run, error.newer_run))
    if isinstance(error, StageMissing):
        return Refusal(Status.FAIL, ErrorCode.STAGE_MISSING, str(error), (error.stage, error.reason))
    return failed(str(error))
