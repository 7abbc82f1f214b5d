"""Values by key, in memory, found by the beginning of their keys."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

Key = tuple[str, ...]
Entry = tuple[Key, bytes]


class Table:
    """Encoded values by key.

    Keys that differ only in their last part stand together, so that all of one client's are found without a look
    at any other's. Costs some 150 bytes for each key beside its text and value.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, dict[str, bytes]] = {}
        self._order: list[Key] = []

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def get(self, key: Key) -> bytes | None:
        """The value, None for none."""
        group = self._groups.get(key[:-1])
        return None if group is None else group.get(key[-1])

    def put(self, key: Key, value: bytes) -> None:
        """Sets the value."""
        group = self._groups.get(key[:-1])
        if group is None:
            group = self._groups[key[:-1]] = {}
            insort(self._order, key[:-1])
        group[key[-1]] = value

    def delete(self, key: Key) -> bool:
        """Forgets the key; whether it was there."""
        group = self._groups.get(key[:-1])
        if group is None or group.pop(key[-1], None) is None:
            return False
        if not group:
            del self._groups[key[:-1]]
            del self._order[bisect_left(self._order, key[:-1])]
        return True

    def items(self, prefix: Key) -> list[Entry]:
        """Everything whose key begins so, sorted by key."""
        found: list[Entry] = []
        if prefix and (value := self.get(prefix)) is not None:
            found.append((prefix, value))
        at = bisect_left(self._order, prefix)
        while at < len(self._order) and self._order[at][: len(prefix)] == prefix:
            group = self._order[at]
            found += [((*group, last), value) for last, value in self._groups[group].items()]
            at += 1
        found.sort()
        return found

    def batches(self, size: int) -> Iterator[list[Entry]]:
        """All entries, in lists of about `size` bytes; another thread may go on with changes meanwhile.

        A change that falls into that time may be in the lists or not.
        """
        batch: list[Entry] = []
        room = size
        # A copy of a dict is made in one step, whatever other threads do.
        for prefix, group in self._groups.copy().items():
            for last, value in group.copy().items():
                key = (*prefix, last)
                batch.append((key, value))
                room -= len(value) + sum(map(len, key)) + 8
                if room <= 0:
                    yield batch
                    batch, room = [], size
        if batch:
            yield batch
