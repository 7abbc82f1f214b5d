from types import TracebackType

from echomesh.native.data_send import Sender

class Loan:
    """A message that is written in place; it is sent at the end of the block, unless that raises."""

    def __init__(self, sender: Sender, size: int, timeout: float | None = None) -> None: ...
    def __enter__(self) -> memoryview: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
