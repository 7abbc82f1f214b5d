from echomesh.native.log_blocks import Block
from echomesh.native.log_record import Records

def describe_records(
    records: Records, start: int, stop: int
) -> tuple[tuple[Block, Block], bytearray, tuple[bytearray, bytearray]] | None: ...
