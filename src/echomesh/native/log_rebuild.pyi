from typing_extensions import Buffer

from echomesh.native.log_blocks import Block

Column = tuple[Buffer | None, Buffer | None, Buffer | None]

class Rebuilder:
    """Makes records again from the columns of a batch; each is (validity, ends, bytes)."""

    def __init__(self, rows: int, columns: dict[str, Column]) -> None: ...
    def records(self, first: int) -> Block | None: ...
