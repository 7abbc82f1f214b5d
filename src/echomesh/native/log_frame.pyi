from typing_extensions import Buffer

RECORDS: int
APART: int
NOTE: int
FRAME_HEADER_BYTES: int
ENTRY_HEADER_BYTES: int
SECTOR_BYTES: int

def read_frame(buffer: Buffer, position: int, log_id: Buffer) -> tuple[int, int, int] | None: ...
def entries(buffer: Buffer, position: int, length: int) -> list[tuple[int, int, int, int, int, int, int]]: ...
