from collections.abc import Callable, Iterable

from echomesh.native.log_columns import Columns
from echomesh.native.log_record import Records

TIME_COLUMN: int
SOURCE_COLUMN: int
DATACONTENTTYPE_COLUMN: int
DATASCHEMA_COLUMN: int
WHOLE: int

class Scanner(Columns):
    """Builds columns from records, batch after batch."""

    refusal: Exception | str | None

    def __init__(
        self,
        topic: bytes,
        wanted: Iterable[int],
        max_bytes: int,
        max_rows: int,
        judge: Callable[[int, bytes], int],
    ) -> None: ...
    def add(self, records: Records, start: int) -> int: ...
