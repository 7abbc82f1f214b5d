from collections.abc import Callable

from msgspec import Raw

from echomesh.native.log_record import Records

def events_frame(head: bytes, records: Records, first: int, end: int) -> bytes: ...
def runs(records: Records, peer: bytes) -> list[tuple[int, int, bytes | None, bool]]: ...
def arrived(
    raws: list[Raw], start: int, end: int, log_id: bytes, first: int, judge: Callable[[bytes], bool]
) -> tuple[list[Raw], list[bytes] | bytes]: ...
