"""Progress for Prometheus: made when it is asked for, out of the entry that the registry has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from echomesh.errors import StorageError, UsageError
from echomesh.spark.pipelines.registry import Entry, Figures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_NAMES: Final = ("pipeline", "output")
_GAUGES: Final[tuple[tuple[str, str, Callable[[Figures], float]], ...]] = (
    ("lag_events", "Events of the inputs that wait", lambda each: each.lag),
    ("rows_per_second", "Rows a second within the last batch", lambda each: each.rows_per_s),
    ("batch_seconds", "Duration of the last batch", lambda each: each.batch_ms / 1000),
    ("batch_rows", "Rows of the last batch", lambda each: each.batch_rows),
    ("batch", "Number of the last batch", lambda each: each.batch),
    ("state_rows", "Rows that are kept as state", lambda each: each.state_rows),
    ("state_bytes", "Memory of the state", lambda each: each.state_bytes),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[Figures], float]], ...]] = (
    ("rows", "Rows read", lambda each: each.rows),
    ("late_rows", "Rows that came after the watermark", lambda each: each.late),
    ("lost_events", "Events that the query went on without", lambda each: each.lost),
    ("restarts", "Restarts after a failure", lambda each: each.restarts),
)


class _Collector:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        entry = self.entry
        up = GaugeMetricFamily("echomesh_pipeline_up", "Whether its queries run", labels=["pipeline"])
        up.add_metric([entry.name], float(entry.state == "running"))
        yield up
        for families, kind in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for name, help, value in families:
                family = kind(f"echomesh_pipeline_{name}", help, labels=_NAMES)
                for each in entry.queries:
                    family.add_metric([entry.name, each.output], value(each))
                yield family
        lag = GaugeMetricFamily(
            "echomesh_pipeline_topic_lag_events", "Of the topics with most of it", labels=[*_NAMES, "topic"]
        )
        for each in entry.queries:
            for topic, waiting in each.topics:
                lag.add_metric([entry.name, each.output, topic], waiting)
        yield lag


@contextlib.contextmanager
def served(entry: Entry, listen: str | None) -> Iterator[None]:
    """Serves the metrics at HOST:PORT for as long as this holds; without an address nothing is served."""
    if listen is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise UsageError('metrics need prometheus-client: pip install "echomesh[spark]"') from None
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--metrics {listen}: give HOST:PORT, as in 127.0.0.1:9464")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(entry))
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except OSError as error:
        raise StorageError(f"metrics can't be served at {listen}: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
