from echomesh.native.log_window import Window

class CoveredWindow(Window):
    """A topic's window together with the rows of a commit that is being copied."""

    own: Window
    def __init__(self, own: Window, rows: Window, first: int, time_ns: int) -> None: ...
    def settle(self, limit: int) -> bool: ...
