from __future__ import annotations

class Answers:
    """Those who wait for their appends, in order."""

    @property
    def answered(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    def __len__(self) -> int: ...
