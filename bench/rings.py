"""Part `rings`: the compiled core against the peers, one publisher process and one subscriber process."""

from __future__ import annotations

from bench.harness.peer import Contestant
from bench.harness.progress import progress
from bench.harness.rounds import Claim, Comparison, Patience, compared
from bench.harness.rows import Row

RING = Contestant("ring", "single", "echomesh ring")
RING_BATCHES = Contestant("ring", "batch", "echomesh ring, write_many")
RING_IN_PLACE = Contestant("ring", "in place", "echomesh ring, in place")
RING_SPINNING = Contestant("ring", "spin", "echomesh ring, spinning")
RING_SLEEPING = Contestant("ring", "sleep", "echomesh ring, sleeping")
ECHO = Contestant("echo", "spin", "echomesh nukleus, spinning")
ZEROMQ = Contestant("zeromq", "ipc", "pyzmq ipc PUSH/PULL")
ZENOH_TCP = Contestant("eclipse_zenoh", "tcp", "Zenoh tcp")
ZENOH_UNIX = Contestant("eclipse_zenoh", "unixsock", "Zenoh unixsock")
ICEORYX_POLL = Contestant("iceoryx", "poll", "iceoryx2 poll")
ICEORYX_EVENT = Contestant("iceoryx", "event", "iceoryx2 event")
UNIX_SOCKET = Contestant("raw", "unix", "raw unix socket")

COMPARISONS = (
    Comparison(
        "stream",
        64,
        (
            Claim("64 B, one call each", RING, (ZEROMQ,), target=5.0),
            Claim("64 B, write_many and drain", RING_BATCHES, (ZEROMQ,)),
        ),
    ),
    Comparison("stream", 1024, (Claim("1 KiB, one call each", RING, (ZEROMQ, ZENOH_TCP, ZENOH_UNIX), target=5.0),)),
    Comparison(
        "stream",
        65536,
        (
            Claim("64 KiB, read in place", RING_IN_PLACE, (UNIX_SOCKET,), target=1.5),
            Claim("64 KiB, read in place", RING_IN_PLACE, (ICEORYX_EVENT,)),
        ),
    ),
    Comparison("round trip", 64, (Claim("round trip 64 B, spinning", RING_SPINNING, (ICEORYX_POLL,), target=2.0),)),
    Comparison("round trip", 64, (Claim("round trip 64 B, sleeping", RING_SLEEPING, (UNIX_SOCKET,), target=1.0),)),
    # One every millisecond: whoever answers has to be woken each time.
    Comparison(
        "paced round trip", 64, (Claim("round trip 64 B, sleeping, paced", RING_SLEEPING, (UNIX_SOCKET,), target=1.0),)
    ),
    # Half as fast as the bare ring is what the nukleus may cost.
    Comparison("round trip", 64, (Claim("echo through the nukleus, 64 B", ECHO, (RING_SPINNING,), target=0.5),)),
)

# Repetitions, seconds for each measurement, seconds to wait for a quiet machine: a minute, or five, in all.
QUICK = (3, 0.5, 10.0)
FULL = (9, 1.0, 60.0)


def run(quick: bool) -> list[Row]:
    repetitions, seconds, patience_seconds = QUICK if quick else FULL
    patience = Patience(patience_seconds)
    total = repetitions * sum(len(comparison.contestants) for comparison in COMPARISONS)
    with progress(total) as say:
        return [row for comparison in COMPARISONS for row in compared(comparison, repetitions, seconds, patience, say)]
