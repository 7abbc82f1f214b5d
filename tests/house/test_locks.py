"""The lock files can be installed anywhere, and say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import ROOT

LAYERS = ["demo", "test", "bench", "docs", "all"]
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))? \\$")
FORBIDDEN = {
    "an address": re.compile(r"://|\bfile:"),
    "an option that names an index": re.compile(r"^\s*--(?!hash=)", re.MULTILINE),
    "a path of one machine": re.compile(r"(?:^|[\s=\"'@])(?:/|~/|\.\./)\w", re.MULTILINE),
    "a host name": re.compile(r"\b[\w-]+\.(?:org|com|net|io|dev|internal|local)\b"),
}


def faults(lock: str) -> list[str]:
    """Everything in a lock file that would tie it to one place."""
    return [f"{what}: {found[0]!r}" for what, pattern in FORBIDDEN.items() if (found := pattern.search(lock))]


def pins(lock: str) -> dict[tuple[str, str], str]:
    """Name and marker of every pinned package, with its version."""
    return {
        (found["name"], found["marker"] or ""): found["version"]
        for line in lock.splitlines()
        if (found := PIN.match(line))
    }


def read(layer: str) -> str:
    return Path(ROOT, "requirements", f"{layer}.txt").read_text()


@pytest.mark.parametrize("layer", LAYERS)
def test_a_lock_file_names_no_host_and_no_path(layer: str) -> None:
    assert faults(read(layer)) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://packages.example/simple",
        "--find-links wheels",
        "thing @ file:wheels/thing.whl",
        "    # via -r /srv/somebody/requirements.in",
        "    # via packages.example.org",
    ],
)
def test_a_lock_file_that_names_a_place_is_found_out(line: str) -> None:
    assert faults(f"a==1 \\\n    --hash=sha256:00\n{line}\n")


@pytest.mark.parametrize("layer", LAYERS)
def test_every_package_of_a_lock_file_has_a_version_and_a_hash(layer: str) -> None:
    entries = re.split(r"^(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", read(layer), flags=re.MULTILINE), flags=re.M)
    entries = [entry for entry in entries if entry]
    assert len(entries) == len(pins(read(layer))) > 5
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer != "all"])
def test_every_layer_is_a_part_of_the_whole_environment(layer: str) -> None:
    everything = {name: version for (name, _), version in pins(read("all")).items()}
    differing = {
        name: (version, everything.get(name))
        for (name, _), version in pins(read(layer)).items()
        if everything.get(name) != version
    }
    assert differing == {}


@pytest.mark.parametrize(("smaller", "larger"), [("demo", "test"), ("test", "bench")])
def test_a_larger_layer_contains_the_smaller(smaller: str, larger: str) -> None:
    assert pins(read(smaller)).keys() <= pins(read(larger)).keys()


def test_what_pyproject_asks_for_is_locked() -> None:
    """Catches a dependency that was added without `make lock`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = list(project["project"]["dependencies"])
    for extra in ("spark", "node"):
        asked += project["project"]["optional-dependencies"][extra]
    for group in project["dependency-groups"].values():
        asked += [entry for entry in group if isinstance(entry, str)]
    locked = {name for name, _ in pins(read("all"))}
    assert {re.split(r"[<>=!~\[ ;]", entry)[0].lower() for entry in asked} - locked == set()


def test_the_build_tools_of_a_wheel_are_those_of_the_environment() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == project["dependency-groups"]["build"]
