"""What HTTP answers when something is not done: problem details (RFC 9457) with the mesh's own status and error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from echomesh.errors import EchomeshError, LoginBusy, MessageTooLarge, UsageError
from echomesh.mesh.codes import DESCRIPTIONS, ErrorCode, Status
from echomesh.mesh.refusal import Refusal

MEDIA_TYPE: Final = "application/problem+json"
CLOSE: Final = {"Connection": "close"}


class Problem(Exception):
    """An answer other than success."""

    def __init__(
        self,
        http_status: int,
        detail: str,
        *,
        status: Status = Status.FAIL,
        error: ErrorCode = ErrorCode.NONE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.http_status = http_status
        self.detail = detail
        self.status = status
        self.error = error
        self.headers = dict(headers or {})
        super().__init__(detail)

    def body(self) -> bytes:
        """The problem details."""
        return msgspec.json.encode(
            {
                "type": "about:blank",
                "title": HTTPStatus(self.http_status).phrase,
                "status": self.http_status,
                "detail": self.detail,
                "mesh_status": DESCRIPTIONS[self.status],
                "mesh_error": str(self.error),
            }
        )

    def response(self) -> Response:
        """The answer."""
        return Response(self.body(), self.http_status, self.headers, MEDIA_TYPE)


def retry(seconds: float) -> dict[str, str]:
    """The header that says when to come again."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def unavailable(detail: str, retry_s: float = 1.0) -> Problem:
    """Not now."""
    return Problem(503, detail, headers=retry(retry_s))


def from_refusal(refusal: Refusal) -> Problem:
    """What the core refuses."""
    http_status = {Status.ACL_FAIL: 403, Status.TPS_OVERLOAD: 429}.get(refusal.status, 400)
    return Problem(http_status, refusal.description, status=refusal.status, error=refusal.error)


def from_error(error: EchomeshError) -> Problem:
    """What the input or the log makes impossible."""
    if isinstance(error, MessageTooLarge):
        return Problem(413, str(error))
    if isinstance(error, LoginBusy):
        return unavailable(str(error), 3.0)
    if isinstance(error, UsageError):
        return Problem(400, str(error))
    return unavailable(str(error), 5.0)


async def on_problem(request: Request, problem: Exception) -> Response:
    """Answers a `Problem`, a `Refusal` or an error of echomesh."""
    if isinstance(problem, Refusal):
        problem = from_refusal(problem)
    elif isinstance(problem, EchomeshError):
        problem = from_error(problem)
    assert isinstance(problem, Problem)
    return problem.response()


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answers what the router refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    details = {404: "publish and subscribe at /topics/<topic>", 405: f"{request.method} is nothing to do here"}
    detail = details.get(error.status_code, error.detail)
    return Problem(error.status_code, detail, headers=error.headers).response()


async def on_bug(request: Request, error: Exception) -> Response:
    """Answers what should not happen; the error itself goes to the log of the server."""
    return Problem(500, "the server made a mistake; its log has more").response()
