"""Participants of several hosts: they find each other, and every publisher's list of subscribers is right."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.data.hosts import HostMachine, hosts
from tests.data.machines import eventually

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="namespaces need root and iproute2"),
]

WAYS = {
    "broadcast": {"ECHOMESH_GROUP": ""},
    "multicast": {"ECHOMESH_BROADCAST": "0"},
    "static peers": {
        "ECHOMESH_GROUP": "",
        "ECHOMESH_BROADCAST": "0",
        "ECHOMESH_PEERS": "10.77.0.1,10.77.0.2:7331",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_hosts_find_each_other(shm_dir: Path, way: str) -> None:
    with hosts(2, shm_dir, **WAYS[way]) as (one, two):
        publishing, subscribing = one.worker(), two.worker()
        publisher, subscriber = publishing.pub("a/b"), subscribing.sub("a/*")
        publishing.sees(publisher, {subscriber: "none"})
        subscribing.sees(subscriber, {publisher: "none"})


def test_a_static_peer_is_enough_on_one_side_where_broadcasts_get_lost(shm_dir: Path) -> None:
    with hosts(2, shm_dir) as (one, two):
        for host in (one, two):
            host.inside("nft", "add table ip t; add chain ip t in { type filter hook input priority 0; }")
            host.inside("nft", "add rule ip t in meta pkttype { broadcast, multicast } drop")
        publishing = one.worker(ECHOMESH_PEERS="10.77.0.2")
        subscribing = two.worker()
        publisher, subscriber = publishing.pub("a"), subscribing.sub("a")
        publishing.sees(publisher, {subscriber: "none"})


def test_three_hosts_with_two_processes_each_have_the_right_lists_through_everything(shm_dir: Path) -> None:
    with hosts(3, shm_dir) as machines:
        workers = [[machine.worker(), machine.worker()] for machine in machines]
        publishers = [(pair[0], pair[0].pub("a/b")) for pair in workers]
        subscribers: dict[str, HostMachine] = {}

        def right() -> None:
            for machine, (worker, publisher) in zip(machines, publishers, strict=True):
                worker.sees(publisher, {id: "shm" if at is machine else "none" for id, at in subscribers.items()})

        right()
        joined = []
        for machine, pair in zip(machines, workers, strict=True):  # joins
            joined.append(pair[1].sub("a/*"))
            subscribers[joined[-1]] = machine
            right()
        own = workers[0][0].sub("**")
        subscribers[own] = machines[0]
        right()
        workers[0][0].ask(close=own)  # a leave
        del subscribers[own]
        right()
        workers[1][1].kill()  # kill -9
        del subscribers[joined[1]]
        right()
        machines[0].kill_participant()  # of which one host's participant is started again
        right()
        machines[2].unplug()  # a vanished host
        gone = {joined[2]}
        for machine, (worker, publisher) in list(zip(machines, publishers, strict=True))[:2]:
            worker.sees(
                publisher, {id: "shm" if at is machine else "none" for id, at in subscribers.items() if id not in gone}
            )
        workers[2][0].sees(publishers[2][1], {joined[2]: "shm"})
        machines[2].plug()  # and it is back
        right()


def test_a_participant_that_was_stopped_comes_back_to_what_is_true_by_then(shm_dir: Path) -> None:
    with hosts(2, shm_dir) as (one, two):
        publishing, subscribing = one.worker(), two.worker()
        publisher, subscriber = publishing.pub("a"), subscribing.sub("a")
        publishing.sees(publisher, {subscriber: "none"})
        pid = two.kill_participant(signal.SIGSTOP)
        publishing.sees(publisher, {})
        subscribing.ask(close=subscriber)
        os.kill(pid, signal.SIGCONT)
        late = subscribing.sub("*")
        publishing.sees(publisher, {late: "none"})


def test_hosts_of_different_domains_do_not_talk(shm_dir: Path) -> None:
    with hosts(3, shm_dir) as (one, two, three):
        publishing, other, same = one.worker(), two.worker(ECHOMESH_DOMAIN="other"), three.worker()
        publisher = publishing.pub("a")
        other.sub("a")
        subscriber = same.sub("a")
        publishing.sees(publisher, {subscriber: "none"})
        assert publishing.ask(look=1)["ips"] == ["127.0.0.1", "10.77.0.3"]
        eventually(lambda: publishing.ask(look=1)["counters"].get("beacons of other domains", 0) > 0, True)


def test_those_in_containers_that_only_seem_to_be_on_this_host_get_no_shared_memory(shm_dir: Path) -> None:
    # They have the host's network, the participant's cookie, and nuklei of the same name in directories of the same
    # path: each of a /dev/shm of its own.
    with hosts(1, shm_dir) as (host,):
        beside = host.worker("same")
        subscriber = beside.sub("a")
        address = host.address()
        told = {"ECHOMESH_TEST_ADDRESS": f"{address.port}:{address.cookie.hex()}"}
        inside, next_door = ContainerMachine(host).worker("same", **told), ContainerMachine(host).worker("same", **told)
        try:
            publisher, neighbour = inside.pub("a"), next_door.sub("a")
            inside.sees(publisher, {subscriber: "none", neighbour: "none"})
            local = beside.pub("a")
            beside.sees(local, {subscriber: "shm", neighbour: "none"})
        finally:
            inside.kill()
            next_door.kill()


class ContainerMachine(HostMachine):
    """On a host, with another file system in shared memory."""

    def __init__(self, host: HostMachine) -> None:
        super().__init__(host.namespace, host.address_of_host, host.root)
        self.environment = host.environment

    def command(self, *arguments: str) -> list[str]:
        """In a mount namespace of its own."""
        script = 'mount -t tmpfs tmpfs /dev/shm && mkdir -p -m 700 "$0" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self.root.parent), *super().command(*arguments)]
