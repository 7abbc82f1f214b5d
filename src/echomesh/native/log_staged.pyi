from typing import Any

from typing_extensions import Buffer

from echomesh.native.log_topic import Topic
from echomesh.native.log_window import Window

class CoveredWindow(Window):
    """A topic's window together with the rows of a commit that is being copied."""

    own: Window
    def __init__(self, own: Window, rows: Window, first: int, time_ns: int) -> None: ...
    def settle(self, limit: int) -> bool: ...

def note_unless_failed(log: Any, failures: list[Any], payload: Buffer, topics: list[Any]) -> int: ...
def put_back(
    log: Any, failures: list[Any], topic: Topic, base: int, position: int, rows: int, time_ns: int
) -> None: ...
