"""Who asks: HTTP Basic with a client's id and password, judged as HELLO is."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from echomesh.errors import LoginBusy
from echomesh.mesh.codes import ENVIRONMENTS, ErrorCode, Status
from echomesh.mesh.http_problems import Problem, from_error, retry, unavailable
from echomesh.mesh.near import is_loopback
from echomesh.mesh.ports import AccessPort, Rights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from echomesh.mesh.core import MeshCore

NOBODY: Final = "http"
"""The client id of those who name none, where nobody is asked for a password."""
CHECK_S: Final = 30.0
ASK: Final = {"WWW-Authenticate": 'Basic realm="echomesh", charset="UTF-8"'}


@dataclass(frozen=True)
class Caller:
    """A client that was let in, for one environment."""

    client_id: str
    rights: Rights
    environment: str
    peer: str
    access: AccessPort

    @property
    def changed(self) -> bool:
        """Whether the client's entry is another one now."""
        return self.access.rights(self.client_id) is not self.rights


def environment_of(request: Request) -> str:
    """The environment that a request is for."""
    named = request.headers.get("x-eventmesh-environment") or request.query_params.get("environment")
    environment = named or ENVIRONMENTS[0]
    if environment not in ENVIRONMENTS:
        raise Problem(400, f"an environment is one of {', '.join(ENVIRONMENTS)}")
    return environment


async def identify(core: MeshCore, request: Request, hosts: Sequence[str]) -> Caller:
    """Who asks; 401 for an unknown client or a wrong password."""
    environment = environment_of(request)
    peer = request.client.host if request.client is not None else ""
    local = is_loopback(peer)
    if core.open_to(local):
        _check_host(request, hosts)
    given = _credentials(request.headers.getlist("authorization"))
    client_id, password = given or (NOBODY, None)
    now = asyncio.get_running_loop().time()
    if given is not None and (wait := core.guesses.wait(peer, now, client_id)):
        raise Problem(
            429,
            f"too many wrong passwords: try again in {wait:.0f} s",
            status=Status.ACL_FAIL,
            error=ErrorCode.NOT_AUTHORIZED,
            headers=retry(wait),
        )
    access = core.judge(local)
    rights = await _verify(access, client_id, password)
    if rights is None:
        if given is not None:
            core.guesses.failed(peer, now, client_id)
            core.counts.refused_hellos += 1
        why = "unknown client or wrong password" if given is not None else "say who you are: client id and password"
        raise Problem(401, why, status=Status.ACL_FAIL, error=ErrorCode.NOT_AUTHORIZED, headers=ASK)
    if given is not None:
        core.guesses.succeeded(peer, client_id)
    if not rights.may_use(environment):
        raise forbidden(f"{client_id} may not use {environment}", ErrorCode.NOT_AUTHORIZED)
    return Caller(client_id, rights, environment, peer, access)


def forbidden(detail: str, error: ErrorCode) -> Problem:
    """A right that the client does not have."""
    return Problem(403, detail, status=Status.ACL_FAIL, error=error)


async def _verify(access: AccessPort, client_id: str, password: str | None) -> Rights | None:
    checked: asyncio.Future[Rights | None] = asyncio.get_running_loop().create_future()

    def done(rights: Rights | None) -> None:
        if not checked.done():
            checked.set_result(rights)

    try:
        access.verify(client_id, password, done)
        async with asyncio.timeout(CHECK_S):
            return await checked
    except LoginBusy as error:
        raise from_error(error) from None
    except TimeoutError:
        raise unavailable("the password could not be checked in time", 3.0) from None


def _credentials(headers: Sequence[str]) -> tuple[str, str] | None:
    if not headers:
        return None
    scheme, _, encoded = headers[0].partition(" ")
    try:
        if len(headers) > 1 or scheme.lower() != "basic":
            raise ValueError
        client_id, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = client_id = password = ""
    if not colon:
        raise Problem(
            401,
            "Authorization wants: Basic, and base64 of client id, ':' and password",
            status=Status.ACL_FAIL,
            error=ErrorCode.NOT_AUTHORIZED,
            headers=ASK,
        )
    return client_id, password


def _check_host(request: Request, hosts: Sequence[str]) -> None:
    # A page of anywhere may have its own name lead to this machine, and would then be let in without a password.
    named = request.headers.get("host", "localhost").lower()
    host = named[1:].partition("]")[0] if named.startswith("[") else named.partition(":")[0]
    try:
        known = ipaddress.ip_address(host).is_loopback
    except ValueError:
        known = host == "localhost" or host.endswith(".localhost") or host in hosts
    if not known:
        raise forbidden("this server is open to this machine alone: call it localhost", ErrorCode.NOT_AUTHORIZED)
