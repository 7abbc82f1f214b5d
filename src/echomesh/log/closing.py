"""What is closed at the end of a `with` statement."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Has a `close`, and calls it when the statement ends."""

    def close(self) -> None:
        """Gives everything back."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
