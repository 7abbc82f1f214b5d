"""Zenoh from peer to peer, without router or scouting; reliable and blocking, received by callback."""

from __future__ import annotations

import json
import threading
from typing import Any

import zenoh
import zenoh.shm

from bench.harness.peer import Peer, Receiver, Role, Run, Sender
from bench.native.checker import Checker

SHARED_BUFFERS = 64


class ZenohPeer(Peer):
    """Variants: tcp, unixsock, and shm, which is tcp with messages in shared memory. Role a listens."""

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        if role == "a":
            self.session = self._open("listen")

    def connect(self) -> None:
        if self.role == "b":
            self.session = self._open("connect")

    def _open(self, side: str) -> Any:
        run = self.run
        endpoint = f"tcp/127.0.0.1:{run.port}"
        if run.variant == "unixsock":
            endpoint = f"unixsock-stream/{run.directory}/zenoh.sock"
        settings = {
            "mode": "peer",
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/shared_memory/enabled": run.variant == "shm",
            "listen/endpoints": [],
            f"{side}/endpoints": [endpoint],
        }
        config = zenoh.Config()
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        return zenoh.open(config)

    def sender(self, channel: str) -> Sender:
        publisher = self.session.declare_publisher(
            f"bench/{channel}",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=self.run.flow != "stream",
        )
        if self.run.variant == "shm":
            return ZenohSharedSender(publisher, self.run.size)
        return ZenohSender(publisher, self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return ZenohReceiver(self.session, f"bench/{channel}")

    def close(self) -> None:
        self.session.close()


class ZenohSender(Sender):
    """A declared publisher."""

    def __init__(self, publisher: Any, size: int) -> None:
        self.body = bytearray(size)
        self.publisher = publisher
        self.send = publisher.put


class ZenohSharedSender(Sender):
    """Copies each message into a buffer of Zenoh's shared memory."""

    def __init__(self, publisher: Any, size: int) -> None:
        self.body = bytearray(size)
        self.publisher = publisher
        self.provider = zenoh.shm.ShmProvider.default_backend(max(size * SHARED_BUFFERS, 4 << 20))
        self.policy = zenoh.shm.BlockOn(zenoh.shm.GarbageCollect())

    def send(self, body: Any) -> None:
        buffer = self.provider.alloc(len(body), self.policy)
        buffer[0 : len(body)] = body
        self.publisher.put(buffer)


class ZenohReceiver(Receiver):
    """A callback, which is faster than Zenoh's channels."""

    def __init__(self, session: Any, key: str) -> None:
        self.session, self.key = session, key

    def receive_all(self, checker: Checker) -> None:
        ended, check = threading.Event(), checker.check

        def on_sample(sample: Any) -> None:
            if check(sample.payload.to_bytes()):
                ended.set()

        subscriber = self.session.declare_subscriber(self.key, on_sample)
        ended.wait()
        subscriber.undeclare()


make = ZenohPeer
