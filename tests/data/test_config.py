"""Options of the data plane: from arguments, else the environment, else the usual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echomesh.data.config import DataOptions, split_peer
from echomesh.errors import BadName, BadOptions

VARIABLES = {
    "ECHOMESH_DOMAIN": "lab",
    "ECHOMESH_BEACON_PORT": "17331",
    "ECHOMESH_PARTICIPANT_PORT": "17332",
    "ECHOMESH_LINK_PORT": "17333",
    "ECHOMESH_GROUP": "239.1.2.3",
    "ECHOMESH_BROADCAST": "0",
    "ECHOMESH_PEERS": "10.0.0.7, robot.local:7441",
    "ECHOMESH_BEACON_SECONDS": "0.5",
    "ECHOMESH_LINGER_SECONDS": "7",
}


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "ECHOMESH_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_what_nobody_set_is_as_the_protocol_says() -> None:
    options = DataOptions()
    assert (options.domain, options.beacon_port, options.participant_port) == ("default", 7331, 7332)
    assert (options.link_port, options.broadcast, options.peers) == (0, True, ())
    assert (options.beacon_s, options.group) == (1.0, "239.255.73.31")


def test_the_environment_sets_all_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    expected = DataOptions(
        domain="lab",
        beacon_port=17331,
        participant_port=17332,
        link_port=17333,
        group="239.1.2.3",
        broadcast=False,
        peers=("10.0.0.7", "robot.local:7441"),
        beacon_s=0.5,
        linger_s=7.0,
    )
    assert DataOptions() == expected
    assert DataOptions(beacon_port=1).beacon_port == 1
    assert expected.root.name == "lab"
    monkeypatch.setenv("ECHOMESH_DIR", str(tmp_path))
    assert expected.root == tmp_path


def test_each_domain_has_a_directory_of_its_own() -> None:
    assert DataOptions(domain="one").root != DataOptions(domain="two").root


def test_they_reach_a_process_of_its_own_whole() -> None:
    options = DataOptions(domain="lab", directory=Path("/d"), peers=("a", "b:7"), beacon_s=0.25, broadcast=False)
    assert DataOptions.of(options.to_dict()) == options


def test_paths_and_peers_may_be_plain_text() -> None:
    options = DataOptions(directory="/d", peers="a, b:7")
    assert options.root == Path("/d")
    assert options.peers == DataOptions(peers=["a", "b:7"]).peers == ("a", "b:7")
    assert DataOptions.of(options.to_dict()) == options


@pytest.mark.parametrize(
    "wrong",
    [
        {"beacon_port": 0},
        {"beacon_port": 65536},
        {"participant_port": -1},
        {"link_port": 70000},
        {"beacon_s": 0.0},
        {"beacon_s": float("nan")},
        {"linger_s": -1.0},
        {"group": "10.0.0.1"},
        {"group": "nowhere"},
        {"peers": ("host:0",)},
        {"peers": (":7331",)},
    ],
)
def test_what_can_not_be_used_is_refused_with_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadOptions) as raised:
        DataOptions(**wrong)
    assert raised.value.name in wrong


def test_a_domain_is_a_name() -> None:
    with pytest.raises(BadName):
        DataOptions(domain="../up")


def test_a_variable_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMESH_BEACON_PORT", "many")
    with pytest.raises(BadOptions, match="ECHOMESH_BEACON_PORT"):
        DataOptions()


def test_a_peer_has_the_usual_port_unless_it_says_another() -> None:
    assert split_peer("10.0.0.7", 7331) == ("10.0.0.7", 7331)
    assert split_peer("robot.local:99", 7331) == ("robot.local", 99)
