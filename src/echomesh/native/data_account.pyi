from echomesh.native.data_home import Home
from echomesh.native.data_message import Origin
from echomesh.native.streams import Outlet

class Account(Origin):
    """The way back to one publisher."""

    outlet: Outlet
    stream_id: int
    window: int
    open: bool
    taken: int
    limit: int
    def __init__(self, home: Home, outlet: Outlet, stream_id: int, window: int) -> None: ...
