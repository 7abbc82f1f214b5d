from echomesh.native.data_home import Home
from echomesh.native.pool import Lease
from echomesh.native.streams import Outlet, Taker

class Target(Taker):
    """One subscriber's stream, as its publisher sees it."""

    home: Home
    outlet: Outlet
    stream_id: int
    next: int
    sent: int
    taken: int
    limit: int
    slow: bool
    open: bool
    ledger: dict[int, Lease]
    lent: int
    lent_limit: int
    def __init__(self, home: Home, outlet: Outlet, stream_id: int) -> None: ...
    def close(self) -> None: ...
    def write(self, sequence: int, time_ns: int, flags: int, prefix: bytes, payload: bytes | Lease) -> bool: ...
    def write_gap(self, first: int, last: int, reason: int) -> bool: ...
    def write_hello(self, publisher: bytes, topic: bytes, next_sequence: int, window: int) -> bool: ...
    def write_retired(self, number: int) -> None: ...
