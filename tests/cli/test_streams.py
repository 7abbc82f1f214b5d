"""`echomesh streams`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from echomesh.native.ring import TRAILER_LENGTH
from tests.cli.conftest import PATIENCE_S, Mesh

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def by_name(found: Any) -> dict[str, Any]:
    return {nukleus["name"]: nukleus for nukleus in found["nuklei"]}


def foreign(mesh: Mesh) -> Path:
    """What another implementation might have laid out: no owner file."""
    place = mesh.root / "java"
    (place / "streams").mkdir(parents=True)
    (place / "streams" / "echo").write_bytes(bytes(65536 + TRAILER_LENGTH))
    (place / "streams" / "junk").write_bytes(b"no ring")
    (place / "streams" / "mad").write_bytes(b"\xff" * (1024 + TRAILER_LENGTH))
    return place


def contents(path: Path) -> dict[Path, tuple[bytes, int]]:
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}


def test_a_directory_without_nuklei_says_so_and_is_not_made(mesh: Mesh) -> None:
    result = mesh.run("streams")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"No nukleus in {mesh.root}.")
    assert mesh.json("streams", "--json") == {"directory": str(mesh.root), "nuklei": []}
    assert not mesh.root.exists()


def test_alive_dead_and_foreign_nuklei_are_told_apart(mesh: Mesh) -> None:
    with mesh.echo("alive") as alive, mesh.echo("dead") as dead:
        mesh.kill(dead)
        foreign(mesh)
        found = by_name(mesh.json("streams", "--json"))
        text = mesh.run("streams").stdout
    assert {name: (one["state"], one["pid"]) for name, one in found.items()} == {
        "alive": ("alive", alive.pid),
        "dead": ("dead", None),
        "java": ("foreign", None),
    }
    assert f"alive  alive  pid {alive.pid}" in text
    assert "dead  dead" in text
    assert "java  foreign" in text


def test_rings_and_counters_are_shown(mesh: Mesh) -> None:
    with mesh.echo():
        for command in (["capture", "echo"], ["route", "echo"], ["bind", "echo"]):
            assert mesh.run("control", "echo", *command).returncode == 0
        echo = by_name(mesh.json("streams", "--json"))["echo"]
        text = mesh.run("streams").stdout
    assert echo["counters"]["commands"] == 3
    assert echo["commands"]["capacity"] == 1 << 20
    assert echo["commands"]["head"] == echo["commands"]["tail"] > 0
    (ring,) = echo["streams"]
    assert (ring["name"], ring["capacity"], ring["in_flight"], ring["fill"]) == ("echo", 1 << 20, 0, 0)
    assert "from echo" in text
    assert "commands\N{NO-BREAK SPACE}3" in text


def test_what_is_no_ring_is_said_to_be_none(mesh: Mesh) -> None:
    foreign(mesh)
    java = by_name(mesh.json("streams", "--json"))["java"]
    problems = {ring["name"]: ring["problem"] for ring in java["streams"]}
    assert problems["echo"] is None
    assert problems["junk"] == "not a ring: 7 bytes are none's size"
    assert problems["mad"] == "its head and tail can't be true"
    assert java["problem"] == "it has no control file"
    assert "from junk: not a ring" in mesh.run("streams").stdout


def test_a_bad_control_file_is_named_as_such(mesh: Mesh) -> None:
    place = foreign(mesh)
    (place / "control").write_bytes(b"\0" * 100)
    assert by_name(mesh.json("streams", "--json"))["java"]["problem"].startswith("version 0")
    assert "version 0" in mesh.run("streams").stdout


def test_looking_changes_nothing(mesh: Mesh) -> None:
    with mesh.echo("dead") as dead:
        assert mesh.run("control", "dead", "capture", "somebody").returncode == 0
        mesh.kill(dead)
    foreign(mesh)
    before = contents(mesh.root)
    assert mesh.run("streams").returncode == 0
    assert mesh.run("streams", "--json").returncode == 0
    assert contents(mesh.root) == before


def test_frames_that_nobody_reads_are_in_flight(mesh: Mesh) -> None:
    with mesh.echo() as echo, mesh.popen("ping", "--count", "0", "--rate", "1000", "--size", "1000") as ping:
        while not (mesh.root / "ping" / "streams" / "echo").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        echo.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        (ring,) = by_name(mesh.json("streams", "--json"))["echo"]["streams"]
        echo.send_signal(signal.SIGCONT)
        mesh.stop(ping)
    assert ring["name"] == "ping"
    assert ring["in_flight"] == ring["tail"] - ring["head"] > 0
    assert 0 < ring["fill"] <= 1


def test_watch_as_json_is_a_line_for_each_look_with_rates(mesh: Mesh) -> None:
    with mesh.echo(), mesh.popen("ping", "--count", "0", "--rate", "1000") as ping:
        with mesh.popen("streams", "--watch", "--interval", "0.3", "--json") as watch:
            assert watch.stdout is not None
            lines = [json.loads(watch.stdout.readline()) for _ in range(6)]
            rest = mesh.stop(watch, signal.SIGINT)
        assert watch.returncode == 0
        mesh.stop(ping)
    assert all(json.loads(line)["nuklei"] for line in rest.splitlines())
    rates = [ring["bytes_per_second"] for line in lines for ring in by_name(line)["echo"]["streams"]]
    assert any(rate is not None and rate > 0 for rate in rates)


def test_watch_redraws_in_place_on_a_terminal_until_ctrl_c(mesh: Mesh) -> None:
    with mesh.echo():
        screen = on_terminal(mesh, ["streams", "--watch", "--interval", "0.1"], until=3, of="echo  alive")
    assert "\x1b[1A" in screen  # the cursor went up, to draw over what was there


def on_terminal(mesh: Mesh, arguments: list[str], *, until: int, of: str) -> str:
    """Runs a command on a terminal of its own, and presses Ctrl-C when it has shown something so often."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(mesh.environment, TERM="xterm-256color", LINES="40")
        os.execv(sys.executable, [sys.executable, "-m", "echomesh", *arguments])
    screen = ""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline and ESCAPES.sub("", screen).count(of) < until:
            screen += os.read(terminal, 65536).decode(errors="replace")
        os.write(terminal, b"\x03")
        while True:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                break
            if not more:
                break
            screen += more.decode(errors="replace")
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return screen
