"""What can be chosen for a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import time_ns

from echomesh.log.storage import RealStorage, Storage


@dataclass(frozen=True)
class LogOptions:
    """Sizes, times and bounds; the ones given suit a server."""

    segment_bytes: int = 64 << 20
    journal_bytes: int = 1 << 20  # of the first file; later ones grow up to 64 MiB under load
    sync_interval_s: float = 1.0
    open_segments: int = 1024  # at most; fewer where the process may not open four times as many files
    lease_offsets: int = 1 << 16
    retention_bytes: int | None = None  # of a topic
    retention_s: float | None = None
    parquet_after_s: float | None = 86400.0  # segments become Parquet files then, where PyArrow is installed
    memory_topic_bytes: int = 16 << 20  # of a `none` topic
    duplicate_events: int = 1_000_000
    duplicate_s: float = 600.0
    duplicate_bytes: int = 256 << 20  # for all topics together; 0 keeps no window
    stage_expiry_s: float = 24 * 3600.0
    adopt_bytes: int = 1 << 20  # stages of at least this size become segments as they are, instead of being copied
    frame_bytes: int = 8 << 20
    kept_bytes: int = 128 << 20
    line_bytes: int = 64 << 20  # of appends that an event loop has waiting for room
    background: bool = True  # False: nothing happens but by calls, for a simulation
    clock: Callable[[], int] = time_ns
    storage: Storage = field(default_factory=RealStorage)

    @property
    def knows_duplicates(self) -> bool:
        """Whether topics have a window of duplicates at all."""
        return self.duplicate_bytes > 0 and self.duplicate_events > 0
