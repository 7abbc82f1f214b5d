"""Links of real processes to a real participant, which is started, restarted and stopped."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.data.machines import Machine, eventually, machine
from tests.support.counts import count


def test_publishers_and_subscribers_of_two_processes_get_a_stream_each(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, other = one.pub("a/b"), one.pub("c")
        exact, wide = two.sub("a/b"), two.sub("**")
        one.sees(publisher, {exact: "shm", wide: "shm"})
        one.sees(other, {wide: "shm"})
        two.sees(wide, {publisher: "shm", other: "shm"})
        one.ask(send=publisher, text="hello")
        eventually(lambda: two.facts()["received"], ["hello", "hello"])


def test_a_process_can_be_publisher_and_subscriber_of_the_same_topic(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        alone = here.worker()
        publisher, subscriber = alone.pub("a"), alone.sub("a")
        alone.sees(publisher, {subscriber: "shm"})
        alone.ask(send=publisher, text="to myself")
        eventually(lambda: alone.facts()["received"], ["to myself"])


def test_those_who_leave_and_those_who_are_killed_go_from_the_lists(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two, three = here.worker(), here.worker(), here.worker()
        publisher = one.pub("a")
        leaving, dying, staying = two.sub("a"), three.sub("a"), two.sub("*")
        one.sees(publisher, {leaving: "shm", dying: "shm", staying: "shm"})
        two.ask(close=leaving)
        one.sees(publisher, {dying: "shm", staying: "shm"})
        three.kill()
        one.sees(publisher, {staying: "shm"})
        eventually(lambda: one.facts()["lost"][publisher], [leaving, dying])


def test_a_publisher_that_was_killed_goes_from_the_lists(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        two.sees(subscriber, {publisher: "shm"})
        one.kill()
        two.sees(subscriber, {})


def test_the_rings_of_processes_that_are_gone_are_given_up(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        stays = here.worker("stays")
        publisher = stays.pub("a")
        for number in range(count(3, 30)):
            goes = here.worker(f"goes{number}")
            subscriber = goes.sub("a")
            stays.sees(publisher, {subscriber: "shm"})
            goes.kill()
            stays.sees(publisher, {})
        eventually(lambda: stays.facts()["rings"], [])
        eventually(lambda: stays.facts()["references"], 0)
        eventually(lambda: sorted(path.name for path in here.root.iterdir()), [".lock", ".participant", "stays"])


def test_processes_with_nothing_in_common_any_more_are_taken_apart_and_joined_again(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker("one"), here.worker("two")
        publisher = one.pub("a")
        for text in ("first", "second"):
            subscriber = two.sub("a")
            one.sees(publisher, {subscriber: "shm"})
            one.ask(send=publisher, text=text)
            eventually(lambda text=text: two.facts()["received"][-1:], [text])  # type: ignore[misc]
            two.ask(close=subscriber)
            eventually(lambda: one.facts()["reset"] > 0, True)  # UNROUTE resets what is left


def test_a_stream_that_was_reset_is_made_again(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        one.sees(publisher, {subscriber: "shm"})
        before = one.ask(wired=publisher)
        one.ask(reset=publisher)
        one.sees(publisher, {subscriber: "shm"})
        assert one.ask(wired=publisher) != before
        one.ask(send=publisher, text="again")
        eventually(lambda: two.facts()["received"], ["again"])


@pytest.mark.parametrize("ending", ["close", "kill"])
def test_what_was_sent_is_read_before_processes_are_taken_apart(shm_dir: Path, ending: str) -> None:
    with machine(shm_dir / "m") as here:
        one, two, three = here.worker("one"), here.worker("two"), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        one.sees(publisher, {subscriber: "shm"})
        one.ask(send=publisher, text="first")
        eventually(lambda: two.facts()["received"], ["first"])
        two.send(signal.SIGSTOP)
        one.ask(send=publisher, text="last")
        if ending == "close":
            one.ask(close=publisher)
        else:
            one.kill()
        # The participant had all the time that it needs to be hasty: these came and went meanwhile.
        watching, passing = three.pub("x"), three.sub("x")
        three.sees(watching, {passing: "shm"})
        three.ask(close=watching)
        eventually(lambda: three.facts()["reset"] > 0, True)
        assert (here.root / "one").exists()
        two.send(signal.SIGCONT)
        eventually(lambda: two.facts()["received"], ["first", "last"])
        eventually(lambda: (here.root / "one").exists(), ending == "close")


def test_processes_that_an_earlier_participant_joined_are_taken_apart(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        one.sees(publisher, {subscriber: "shm"})
        here.kill_participant(signal.SIGSTOP)  # it does not see that the subscriber leaves
        two.ask(close=subscriber)
        here.kill_participant()
        eventually(lambda: one.facts()["reset"] > 0, True)


def test_streams_outlive_a_participant_and_are_not_made_twice(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        one.sees(publisher, {subscriber: "shm"})
        stream = one.ask(wired=publisher)
        for number in (signal.SIGKILL, signal.SIGTERM):
            before = one.facts()["connections"][publisher]
            here.kill_participant(number)
            one.ask(send=publisher, text=f"after {number}")
            eventually(lambda before=before: one.facts()["connections"][publisher] > before, True)  # type: ignore[misc]
            eventually(lambda before=before: two.facts()["connections"][subscriber] > before, True)  # type: ignore[misc]
        late = two.sub("a")
        one.sees(publisher, {subscriber: "shm", late: "shm"})
        assert one.ask(wired=publisher)[subscriber] == stream[subscriber]
        assert two.facts()["received"] == [f"after {signal.SIGKILL}", f"after {signal.SIGTERM}"]
        assert (one.facts()["lost"], one.facts()["reset"]) == ({publisher: []}, 0)


def test_who_died_while_there_was_no_participant_is_missed_by_the_next_one(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two, three = here.worker(), here.worker(), here.worker()
        publisher = one.pub("a")
        staying, dying = two.sub("a"), three.sub("a")
        one.sees(publisher, {staying: "shm", dying: "shm"})
        participant = here.kill_participant(signal.SIGSTOP)
        three.kill()
        os.kill(participant, signal.SIGKILL)
        one.sees(publisher, {staying: "shm"})


def test_a_process_that_was_killed_is_missed_though_its_child_has_the_connection_still(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, two = here.worker(), here.worker()
        publisher, subscriber = one.pub("a"), two.sub("a")
        one.sees(publisher, {subscriber: "shm"})
        child = two.ask(fork=60)
        two.kill()
        one.sees(publisher, {})
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("processes", [2, 6])
def test_processes_that_start_the_participant_in_the_same_moment_get_one(shm_dir: Path, processes: int) -> None:
    with machine(shm_dir / "m") as here:
        workers = [here.worker() for _ in range(processes)]
        with ThreadPoolExecutor(processes) as threads:
            subscribers = list(threads.map(lambda worker: worker.sub("a"), workers))
        publisher = workers[0].pub("a")
        workers[0].sees(publisher, dict.fromkeys(subscribers, "shm"))
        assert len(participants_of(here)) == 1


def participants_of(here: Machine) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "echomesh.data" in words and str(here.root) in words[-1]:
            found.append(process.pid)
    return found


@pytest.mark.parametrize("ending", ["leaves", "is killed"])
def test_the_participant_ends_with_the_last_process_and_leaves_no_file(shm_dir: Path, ending: str) -> None:
    with machine(shm_dir / "m") as here:
        worker = here.worker()
        worker.sub("a")
        pid = here.address().pid
        if ending == "leaves":
            worker.end()
        else:
            worker.kill()
        eventually(lambda: psutil.pid_exists(pid), False)
        eventually(here.root.exists, False)


def test_a_process_that_is_stopped_holds_up_nobody_else(shm_dir: Path) -> None:
    with machine(shm_dir / "m") as here:
        one, stopped, three = here.worker(), here.worker(), here.worker()
        publisher, sleeping = one.pub("a"), stopped.sub("a")
        one.sees(publisher, {sleeping: "shm"})
        stopped.send(signal.SIGSTOP)
        other = three.pub("a")  # for which the stopped one can't be wired
        late = three.sub("a")
        one.sees(publisher, {sleeping: "shm", late: "shm"})
        three.sees(other, {late: "shm"})
        stopped.send(signal.SIGCONT)
        three.sees(other, {late: "shm", sleeping: "shm"})
