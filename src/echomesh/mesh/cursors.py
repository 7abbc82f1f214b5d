"""What subscribers left in the state: their filters, and how far each of them is in each topic."""

from __future__ import annotations

from typing import Final, NamedTuple

from echomesh.errors import DamagedError, UsageError
from echomesh.mesh.ports import StatePort

Owner = tuple[str, str]

SUBSCRIPTION: Final = "subscription"
CURSOR: Final = "cursor"


def client_owner(client_id: str) -> Owner:
    """A client that has its subscriptions to itself."""
    return ("client", client_id)


def group_owner(name: str) -> Owner:
    """All clients of a group: they share its filters and its cursors. No client id is ever taken for one."""
    return ("group", name)


class Subscription(NamedTuple):
    """A filter that is kept, whether its owner is there or not."""

    environment: str
    owner: Owner
    filter: str
    begun_ns: int
    """When it was made, ns since 1970; 0 where nobody said."""


class Cursors:
    """Subscriptions and cursors, typed, in a state.

    A cursor is the offset that its owner wants next: everything before it was dealt with. Changes are in the state at
    once; the state says when they are safe.
    """

    def __init__(self, state: StatePort) -> None:
        self._state = state
        self.count = sum(1 for _ in state.items((CURSOR,)))
        """Cursors of everybody in all topics."""

    # Filters

    def subscribe(self, environment: str, owner: Owner, filter: str, begun_ns: int = 0) -> None:
        """Keeps the filter; one that is kept already stays as old as it is."""
        key = (SUBSCRIPTION, environment, *owner, filter)
        if self._state.get(key) is None:
            self._state.put(key, begun_ns)

    def unsubscribe(self, environment: str, owner: Owner, filter: str) -> bool:
        """Forgets the filter; whether there was one. Cursors stay: other filters may match their topics."""
        key = (SUBSCRIPTION, environment, *owner, filter)
        known = self._state.get(key) is not None
        self._state.delete(key)
        return known

    def filters_of(self, environment: str, owner: Owner) -> list[str]:
        """The filters that are kept for the owner, sorted."""
        return [key[-1] for key, _ in self._state.items((SUBSCRIPTION, environment, *owner))]

    def subscriptions(self, environment: str | None = None) -> list[Subscription]:
        """Everybody's, of one environment or of all."""
        prefix = (SUBSCRIPTION,) if environment is None else (SUBSCRIPTION, environment)
        return [
            Subscription(key[1], (key[2], key[3]), key[4], _number(key, value))
            for key, value in self._state.items(prefix)
        ]

    # Cursors

    def cursor(self, environment: str, owner: Owner, topic: str) -> int | None:
        """The offset that the owner wants next; None where it never was."""
        key = (CURSOR, environment, *owner, topic)
        value = self._state.get(key)
        return None if value is None else _number(key, value)

    def set_cursor(self, environment: str, owner: Owner, topic: str, offset: int) -> None:
        """Puts the owner there, forward or back."""
        key = (CURSOR, environment, *owner, topic)
        new = self._state.get(key) is None
        self._state.put(key, _checked(offset))
        self.count += new

    def acknowledge(self, environment: str, owner: Owner, topic: str, offset: int) -> bool:
        """Everything before `offset` was dealt with; whether that is news. A cursor never goes back so."""
        key = (CURSOR, environment, *owner, topic)
        known = self._state.get(key)
        if known is not None and _number(key, known) >= offset:
            return False
        self._state.put(key, _checked(offset))
        self.count += known is None
        return True

    def topics_of(self, environment: str, owner: Owner) -> dict[str, int]:
        """Each topic in which the owner has a cursor, and where it stands there."""
        return {key[-1]: _number(key, value) for key, value in self._state.items((CURSOR, environment, *owner))}

    # Forgetting

    def forget(self, environment: str, owner: Owner, topic: str) -> None:
        """The owner has no place in the topic any more."""
        key = (CURSOR, environment, *owner, topic)
        self.count -= self._state.get(key) is not None
        self._state.delete(key)

    def forget_owner(self, environment: str, owner: Owner) -> None:
        """Nothing of the owner is left: no filter, no cursor."""
        for kind in (SUBSCRIPTION, CURSOR):
            for key, _ in self._state.items((kind, environment, *owner)):
                self._state.delete(key)
                self.count -= kind == CURSOR


def _checked(offset: int) -> int:
    if not 0 <= offset < 1 << 63:
        raise UsageError(f"{offset} is no offset: it must be from 0 to 2^63 - 1")
    return offset


def _number(key: tuple[str, ...], value: object) -> int:
    if type(value) is not int:
        raise DamagedError(f"the state has {value!r} for {'/'.join(key)}, not a number: subscribe again")
    return value
