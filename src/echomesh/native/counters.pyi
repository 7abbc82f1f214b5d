from echomesh.native.mapping import Mapping

class Counter:
    """One number of a table."""

    id: int
    value: int
    def add(self, count: int = 1) -> None: ...

class Counters:
    """A table of labelled numbers in two parts of a mapped file."""

    slots: int
    def __init__(
        self,
        labels: Mapping,
        values: Mapping,
        labels_at: int = 0,
        values_at: int = 0,
        labels_length: int | None = None,
        values_length: int | None = None,
    ) -> None: ...
    def allocate(self, label: str) -> Counter: ...
    def free(self, counter: Counter) -> None: ...
    def list(self) -> list[tuple[int, str, int]]: ...
