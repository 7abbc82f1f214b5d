"""Errors of the data plane: participants, publishers and subscribers."""

from __future__ import annotations

from echomesh.errors.general import BusyError, EchomeshError, UsageError


class DataError(EchomeshError):
    """A publisher, subscriber or participant could not do what was asked."""


class BadOptions(DataError, UsageError):
    """An option of the data plane that can't be used."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        self.name = name
        self.value = value
        self.reason = reason
        super().__init__(f"{name} = {value!r}: {reason}")


class BadPacket(DataError):
    """Bytes that are no beacon or control message."""


class NoParticipant(DataError, ConnectionError):
    """No participant of this machine could be found, started or reached."""


class PortTaken(NoParticipant, BusyError):
    """Another program listens on a port that the participant needs."""

    def __init__(self, what: str, port: int, variable: str) -> None:
        self.port = port
        super().__init__(f"the {what} port {port} is taken: stop who has it, or set {variable} to another one")


class InitFailed(DataError):
    """The participant refused a publisher or subscriber; each reason has a type of its own."""

    advice = "look into what it says"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"the participant of this machine refused: {detail}; {self.advice}")

    def __reduce__(self) -> tuple[type[InitFailed], tuple[str]]:
        return type(self), (self.detail,)


class WrongVersion(InitFailed):
    """It speaks another version of the protocol."""

    advice = "end it, and the next process starts one of this version"


class WrongDomain(InitFailed):
    """It belongs to another domain."""

    advice = "set ECHOMESH_DOMAIN, or ECHOMESH_DIR to a directory of each domain's own"


class TopicRefused(InitFailed):
    """It does not take this topic or filter."""

    advice = "use segments with one '/' between them, '*' and '**' in filters only"


class NotAuthorised(InitFailed):
    """It did not see the cookie that only its own user can read."""

    advice = "use the participant of your own user, or set ECHOMESH_PARTICIPANT_PORT to a port of your own"


class TooManyEndpoints(InitFailed):
    """It has as many publishers and subscribers as it can hold."""

    advice = "close some"
