"""iceoryx2 publish and subscribe of byte slices, without overflow: the publisher waits."""

from __future__ import annotations

import ctypes
from typing import Any

import iceoryx2

from bench.harness.peer import Peer, Receiver, Role, Run, Sender
from bench.native.checker import stamp

QUEUED_BYTES = 64 << 20


class IceoryxPeer(Peer):
    """Variants: poll receives busily, event sleeps in a listener that each message notifies.

    loan is poll with messages that are stamped where they lie: nothing is copied.
    """

    def __init__(self, run: Run, role: Role) -> None:
        super().__init__(run, role)
        iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
        config = iceoryx2.config.default()
        # Its files and its shared memory go with the run's directory, whatever happens to the processes.
        config.global_cfg.root_path = iceoryx2.Path.new(str(run.directory))
        config.global_cfg.prefix = iceoryx2.FileName.new(f"{run.directory.name}_")
        node = iceoryx2.NodeBuilder.new().config(config)
        self.node = node.create(iceoryx2.ServiceType.Ipc)
        self.queued = max(4, min(256, QUEUED_BYTES // run.size))

    def _service(self, channel: str) -> Any:
        service = self.node.service_builder(iceoryx2.ServiceName.new(f"bench/{channel}"))
        return (
            service.publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(self.queued)
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()
        )

    def _event(self, channel: str) -> Any:
        if self.run.variant != "event":
            return None
        name = iceoryx2.ServiceName.new(f"bench/{channel}/event")
        return self.node.service_builder(name).event().open_or_create()

    def sender(self, channel: str) -> Sender:
        kind = IceoryxLoanSender if self.run.variant == "loan" else IceoryxSender
        return kind(self._service(channel), self._event(channel), self.run.size)

    def receiver(self, channel: str) -> Receiver:
        return IceoryxReceiver(self._service(channel), self._event(channel), self.run.size)


class IceoryxSender(Sender):
    """Loans a slice, copies the message in, sends it."""

    def __init__(self, service: Any, event: Any, size: int) -> None:
        strategy = iceoryx2.BackpressureStrategy.RetryUntilDelivered
        builder = service.publisher_builder().initial_max_slice_len(size)
        self.service = service
        self.publisher = builder.backpressure_strategy(strategy).create()
        self.notify = event.notifier_builder().create().notify if event else None
        self.body = (ctypes.c_uint8 * size)()
        self.size = size

    def send(self, body: Any) -> None:
        loaned = self.publisher.loan_slice_uninit(self.size)
        ctypes.memmove(loaned.payload_ptr, body, self.size)
        loaned.assume_init().send()
        if self.notify:
            self.notify()

    def send_all(self, stamps: Any) -> None:
        loan, move, size, notify = self.publisher.loan_slice_uninit, ctypes.memmove, self.size, self.notify
        for body in stamps:
            loaned = loan(size)
            move(loaned.payload_ptr, body, size)
            loaned.assume_init().send()
            if notify:
                notify()


class IceoryxLoanSender(IceoryxSender):
    """Stamps the slice itself."""

    def send_all(self, stamps: Any) -> None:
        loan, size, array = self.publisher.loan_slice_uninit, self.size, ctypes.c_uint8 * self.size
        for number, _ in enumerate(stamps):
            loaned = loan(size)
            stamp(array.from_address(loaned.payload_ptr), number)
            loaned.assume_init().send()


class IceoryxReceiver(Receiver):
    """Looks at the sample in place; the one before is given back then."""

    def __init__(self, service: Any, event: Any, size: int) -> None:
        self.service = service
        self.subscriber = service.subscriber_builder().create()
        self.listener = event.listener_builder().create() if event else None
        self.patience = iceoryx2.Duration.from_millis(100)
        self.array = ctypes.c_uint8 * size
        self.sample: Any = None

    def receive(self) -> Any:
        receive, listener = self.subscriber.receive, self.listener
        while (sample := receive()) is None:
            if listener:
                listener.timed_wait(self.patience)
        self.sample = sample
        return self.array.from_address(sample.payload_ptr)


make = IceoryxPeer
