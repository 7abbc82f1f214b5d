"""The vectors of the real Agrona library: the same operations give the same results and the same bytes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from echomesh.errors import CountersFull, Lapped, UsageError
from echomesh.native.broadcast import Receiver, Transmitter
from echomesh.native.counters import Counters
from echomesh.native.mapping import Mapping
from echomesh.native.ring import Ring

GOLDEN = Path(__file__).parent / "golden"
VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "index.json").read_text())["vectors"]
TAIL, HEAD_CACHE, HEAD = 128, 256, 384


def vectors(kind: str) -> list[Any]:
    chosen = [v for v in VECTORS if v["kind"] == kind]
    return [pytest.param(v, id=v.get("name", kind)) for v in chosen]


def put_long(mapping: Mapping, at: int, value: int) -> None:
    memoryview(mapping)[at : at + 8] = value.to_bytes(8, "little")


class RingReplay:
    """Replays the operations of one vector on a zeroed ring."""

    def __init__(self, mapping: Mapping, capacity: int) -> None:
        self.mapping, self.capacity = mapping, capacity
        self.ring = Ring(mapping)
        self.claims: list[Any] = []

    def write(self, op: dict[str, Any]) -> None:
        data = bytes.fromhex(op["hex"])
        if op.get("refused"):
            with pytest.raises(UsageError):
                self.ring.write(op["type"], data)
        else:
            assert self.ring.write(op["type"], data) is op["result"]

    def read(self, op: dict[str, Any]) -> None:
        got: list[dict[str, Any]] = []
        count = self.ring.read(lambda kind, view: got.append({"type": kind, "hex": view.hex()}), op["limit"])
        assert (count, got) == (op["result"], op["messages"])

    def set_positions(self, op: dict[str, Any]) -> None:
        for at in (TAIL, HEAD_CACHE, HEAD):
            put_long(self.mapping, self.capacity + at, op["value"])

    def advance_tail(self, op: dict[str, Any]) -> None:
        put_long(self.mapping, self.capacity + TAIL, self.ring.tail + op["bytes"])

    def claim_only(self, op: dict[str, Any]) -> None:
        self.claims.append(self.ring.claim(op["type"], op["length"]))

    def unblock(self, op: dict[str, Any]) -> None:
        assert self.ring.unblock() is op["result"]
        # The claim is dead by now; finishing it later must not be part of the replay.
        for claim in self.claims:
            self.dead = memoryview(claim)

    def correlation(self, op: dict[str, Any]) -> None:
        assert self.ring.next_correlation_id() == op["result"]

    def heartbeat(self, op: dict[str, Any]) -> None:
        self.ring.heartbeat = op["value"]

    def snapshot(self, op: dict[str, Any]) -> None:
        ring = self.ring
        names = ("capacity", "tail", "head_cache", "head", "heartbeat", "size", "max_message")
        assert {name: getattr(ring, name) for name in names} == {name: op[name] for name in names}
        assert bytes(memoryview(self.mapping)) == (GOLDEN / op["file"]).read_bytes()


RING_OPS = {
    "write": RingReplay.write,
    "read": RingReplay.read,
    "snapshot": RingReplay.snapshot,
    "set tail, head cache and head": RingReplay.set_positions,
    "tail advanced, nothing written": RingReplay.advance_tail,
    "claim only: header written with negative length, body never copied": RingReplay.claim_only,
    "unblock": RingReplay.unblock,
    "nextCorrelationId": RingReplay.correlation,
    "consumerHeartbeatTime": RingReplay.heartbeat,
}


@pytest.mark.parametrize("vector", vectors("ring"))
def test_a_ring_does_to_the_byte_what_agrona_does(vector: dict[str, Any], tmp_path: Path) -> None:
    capacity = vector["capacity"]
    replay = RingReplay(Mapping.create(tmp_path / "ring", capacity + vector["trailer"]), capacity)
    for op in vector["ops"]:
        RING_OPS[op["op"]](replay, op)


@pytest.mark.parametrize("vector", vectors("broadcast"))
def test_a_broadcast_buffer_does_to_the_byte_what_agrona_does(vector: dict[str, Any], tmp_path: Path) -> None:
    mapping = Mapping.create(tmp_path / "broadcast", vector["capacity"] + vector["trailer"])
    transmitter = Transmitter(mapping)
    receivers: dict[str, Receiver] = {}

    def messages(name: str, limit: int) -> list[tuple[int, str]]:
        got: list[tuple[int, str]] = []
        while len(got) < limit:
            with contextlib.suppress(Lapped):  # counted in `lapped`, which the vector checks
                message = receivers[name].receive()
                if message is None:
                    break
                got.append((message[0], message[1].hex()))
        return got

    for op in vector["ops"]:
        match op["op"]:
            case "join" | "copy join":
                receivers[op["receiver"]] = Receiver(mapping)
            case "transmit" if op.get("refused"):
                with pytest.raises(UsageError):
                    transmitter.transmit(op["type"], bytes.fromhex(op["hex"]))
            case "transmit":
                transmitter.transmit(op["type"], bytes.fromhex(op["hex"]))
            case "receive all" | "copy receive one":
                limit = 1 if op["op"] == "copy receive one" else 1 << 30
                expected = [(m["type"], m["hex"]) for m in op["messages"]]
                assert messages(op["receiver"], limit) == expected
                assert receivers[op["receiver"]].lapped == op.get("lapped", 0)
            case "snapshot":
                names = ("tail_intent", "tail", "latest")
                assert {n: getattr(transmitter, n) for n in names} == {n: op[n] for n in names}
                assert bytes(memoryview(mapping)) == (GOLDEN / op["file"]).read_bytes()
            case other:
                pytest.fail(f"unknown operation {other}")
    assert transmitter.max_message == vector["max_message"]


@pytest.mark.parametrize("vector", vectors("counters"))
def test_counters_do_to_the_byte_what_agrona_does(vector: dict[str, Any], tmp_path: Path) -> None:
    labels, values = (Mapping.create(tmp_path / name, 1024) for name in ("labels", "values"))
    table = Counters(labels, values)

    def same_as(name: str) -> None:
        assert bytes(memoryview(labels)) == (GOLDEN / "counters" / f"{name}.labels.bin").read_bytes()
        assert bytes(memoryview(values)) == (GOLDEN / "counters" / f"{name}.values.bin").read_bytes()

    made = []
    for row in vector["three"]:
        made.append(table.allocate(row["label"]))
        made[-1].value = row["value"]
        assert made[-1].id == row["id"]
    same_as("three")
    assert table.list() == [(row["id"], row["label"], row["value"]) for row in vector["three"]]
    table.free(made[1])
    same_as("freed")
    assert table.allocate("reused").id == 1
    same_as("reused")
    for n in range(3, vector["most_in_1024"]):
        table.allocate(f"more {n}")
    with pytest.raises(CountersFull):
        table.allocate("one too many")
