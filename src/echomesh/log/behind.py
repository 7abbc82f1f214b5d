"""Where a log goes on behind damage."""

from __future__ import annotations

from echomesh.native.log_record import BAD, find_record, scan


def next_chain(rest: bytes, above: int, until: int) -> tuple[int, int]:
    """(position, offset) of the record over `above` where the log goes on behind damage; (-1, -1) for none.

    Bytes inside an event may look like records. Those of the log reach up to its end, one behind the other;
    only when none do, as with more damage behind, the first that do not run into another record must serve.
    """
    likely = (-1, -1)
    found, number = find_record(rest, 0, above)
    while found >= 0:
        chain = scan(rest, found, number, until)
        if number < until and (chain.next_offset == until or chain.stopped != BAD):
            return found, number
        stranger = len(scan(rest, chain.next_position, _offset(rest, chain.next_position), max_records=1))
        if likely[0] < 0 and number < until and not stranger:
            likely = found, number
        found, number = find_record(rest, max(chain.next_position, found + 8), above)
    return likely


def _offset(data: bytes, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + 16], "little") & (1 << 62) - 1
