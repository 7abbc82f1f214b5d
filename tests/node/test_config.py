"""The configuration: every key has a default and an explanation, and what is wrong is named."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import BadConfig
from echomesh.log import LogOptions
from echomesh.mesh.options import MeshOptions
from echomesh.node.address import Address
from echomesh.node.config import Config, default_directory
from echomesh.node.config_file import MAX_FILE_BYTES, config_text, parse_config, read_config

SECTIONS = ("http", "tls", "bridges", "log", "mesh")
CHANGED = """
data = "state"
listen = "0.0.0.0:5000"
access = "/etc/echomesh/access.toml"

[http]
listen = "[::1]:8080"
origins = ["https://shop.example"]
hosts = ["mesh.example", "mesh"]

[tls]
certificate = "server.pem"
key = "~/server.key"
client_ca = "ca.pem"

[bridges]
urn = "mesh-1.example"
port = 4890
client = "mesh-1"
password_file = "secret"
logins = { "mesh-2.example" = { client = "shop", password_file = "other" }, "[::1]:5000" = { client = "x" } }
tls = true
ca = "ca.pem"

[log]
retention_time = "7d"
retention_bytes = "1.5 GiB"
segment_bytes = 1048576
duplicate_events = 10
duplicate_time = 1.5
duplicate_bytes = 0
kept_bytes = "32 MiB"
memory_topic_bytes = "2 MB"
parquet_after = "90s"

[mesh]
heartbeat = "500ms"
hello_within = 3
max_connections = 7
max_filters = 8
max_subscribers = 9
max_topics = 10
max_cursors = 11
max_stages = 12
max_origins = 13
strangers_bytes = "6 MiB"
least_rate = 100
frame_bytes = "1 MiB"
credit_bytes = "2 KiB"
in_flight_bytes = "3 KiB"
batch_events = 4
batch_bytes = "5 KiB"
max_tries = 6
retry_after = "2m"
"""


def test_the_printed_file_is_the_defaults() -> None:
    assert parse_config(config_text()) == Config()


def test_the_printed_file_has_every_key_with_an_explanation_above_it() -> None:
    lines = config_text().splitlines()
    found = [line.partition(" = ")[0] for line in lines if " = " in line and not line.startswith("#")]
    names = [key.name for key in fields(Config) if key.name not in SECTIONS]
    names += [key.name for section in SECTIONS for key in fields(getattr(Config(), section))]
    assert found == names
    for before, line in pairwise(lines):
        if line and not line.startswith("#"):
            assert before.startswith("# "), line
    assert max(map(len, lines)) <= 120


def test_every_key_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    found = parse_config(CHANGED, Path("/etc/mesh/echomesh.toml"))
    default = Config()
    for key in fields(Config):
        assert getattr(found, key.name) != getattr(default, key.name), key.name
    for section in SECTIONS:
        for key in fields(getattr(default, section)):
            assert getattr(getattr(found, section), key.name) != getattr(getattr(default, section), key.name), key.name
    assert found.listen == Address("0.0.0.0", 5000)
    assert found.http.listen == Address("::1", 8080)
    assert (found.log.retention_time, found.log.retention_bytes) == (604800.0, 3 << 29)
    assert found.log.kept_bytes == found.log.options().kept_bytes == 32 << 20
    assert found.log.memory_topic_bytes == 2_000_000
    assert (found.mesh.heartbeat, found.mesh.retry_after) == (0.5, 120.0)
    assert found.tls.key == Path("/h/server.key")


def test_relative_paths_are_meant_beside_the_file() -> None:
    found = parse_config(CHANGED, Path("/etc/mesh/echomesh.toml"))
    assert found.directory == Path("/etc/mesh/state")
    assert found.tls.certificate == Path("/etc/mesh/server.pem")
    assert [login.password_file for login in found.bridges.logins] == [Path("/etc/mesh/other"), None]
    assert found.access == Path("/etc/echomesh/access.toml")


def test_the_log_and_the_mesh_get_what_was_set() -> None:
    found = parse_config(CHANGED)
    log = found.log.options()
    assert (log.segment_bytes, log.retention_s, log.retention_bytes) == (1 << 20, 604800.0, 3 << 29)
    assert log.parquet_after_s == 90.0
    assert (log.duplicate_events, log.duplicate_s, log.duplicate_bytes) == (10, 1.5, 0)
    mesh = found.mesh.options("mesh-1.example", 4890)
    assert (mesh.heartbeat_s, mesh.stranger_s, mesh.max_connections, mesh.max_filters) == (0.5, 3.0, 7, 8)
    assert (mesh.frame_bytes, mesh.credit_bytes, mesh.in_flight_bytes) == (1 << 20, 2048, 3072)
    assert (mesh.batch_events, mesh.batch_bytes, mesh.max_tries, mesh.retry_s) == (4, 5120, 6, 120.0)
    assert (mesh.max_subscribers, mesh.max_topics, mesh.max_cursors) == (9, 10, 11)
    assert (mesh.max_stages, mesh.max_origins) == (12, 13)
    assert (mesh.strangers_bytes, mesh.least_rate) == (6 << 20, 100)
    assert (mesh.urn, mesh.port) == ("mesh-1.example", 4890)


def test_the_defaults_are_those_of_the_log_and_the_mesh() -> None:
    storage = LogOptions()
    assert replace(Config().log.options(), storage=storage.storage) == storage
    assert Config().mesh.options("localhost", 4889) == MeshOptions()


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("lisen = 'x'", "lisen", "did you mean listen?"),
        ("[mesh]\nhartbeat = 1", "mesh.hartbeat", "did you mean mesh.heartbeat?"),
        ("heartbeat = 1", "heartbeat", "it belongs into [mesh]"),
        ("[log]\nlisten = 'x:1'", "log.listen", "it stands above all tables"),
        ("[log]\nqqq = 1", "log.qqq", "[log] has retention_time, "),
        ("qqq = 1", "qqq", "there is data, listen, "),
        ("'a b' = 1", "'a b'", "unknown key 'a b'"),
        ("mesh = 3", "mesh", "mesh = 3: it takes a table, [mesh]"),
        ("[data]", "data", "it takes a path such as"),
        ("listen = 4889", "listen", "listen = 4889: it takes HOST:PORT such as"),
        ("listen = ''", "listen", "it takes HOST:PORT"),
        ("[http]\nlisten = 'x'", "http.listen", "http.listen = 'x': it takes HOST:PORT such as 127.0.0.1:4889"),
        ("[log]\nsegment_bytes = 1", "log.segment_bytes", "= 1: it takes a size from 64 KiB to 1 GiB"),
        ("[log]\nsegment_bytes = '64 MIB'", "log.segment_bytes", "such as \"64 MiB\" or 65536 (bytes)"),
        ("[log]\nsegment_bytes = inf", "log.segment_bytes", "it takes a size"),
        ("[log]\nretention_time = '7 dags'", "log.retention_time", "such as \"90s\", \"15m\", \"2h\""),
        ("[log]\nretention_time = true", "log.retention_time", "empty: for ever"),
        ("[log]\nretention_time = nan", "log.retention_time", "it takes a time"),
        ("[mesh]\nmax_tries = 0", "mesh.max_tries", "a whole number from 1 to 1,000"),
        ("[mesh]\nmax_tries = 1.5", "mesh.max_tries", "= 1.5: it takes a whole number"),
        ("http = 'x:1'", "http", "it takes a table, [http]"),
        ("[http]\norigins = 'x'", "http.origins", "= 'x': it takes a list of texts such as [\"https://shop.example\"]"),
        ("[http]\norigins = ['x', 1]", "http.origins", "it takes a list of texts"),
        ("[bridges]\ntls = 'yes'", "bridges.tls", "= 'yes': it takes true or false"),
        ("data = '~nobody-is-called-so/x'", "data", "it takes a path"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_what_is_wanted(text: str, key: str, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_config(text, Path("here.toml"))
    assert caught.value.key == key
    assert str(caught.value).startswith("here.toml: ")
    assert key in str(caught.value)
    assert said in str(caught.value)


def test_a_password_in_the_file_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadConfig, match=r"bridges\.password_file") as caught:
        parse_config("[bridges]\npassword = 'tulip'")
    assert "tulip" not in str(caught.value)


@pytest.mark.parametrize("text", ["listen = ", "a = " + "[" * 5000, "listen = 'a'\nlisten = 'b'"])
def test_what_is_no_toml_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadConfig, match="it is not TOML"):
        parse_config(text)


def test_a_file_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"missing\.toml: it can't be read: No such file"):
        read_config(tmp_path / "missing.toml")
    with pytest.raises(BadConfig, match="can't be read: Is a directory"):
        read_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(BadConfig, match="it is not UTF-8"):
        read_config(tmp_path / "latin.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadConfig, match="more than"):
        read_config(tmp_path / "large.toml")


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=20), st.lists(st.integers(), max_size=2)
)


@given(data=st.data())
def test_any_value_of_any_key_is_taken_or_refused_by_name(data: st.DataObject) -> None:
    document = tomllib.loads(config_text())
    section = data.draw(st.sampled_from(["", *SECTIONS]))
    key = data.draw(st.sampled_from(sorted(document[section] if section else document)))
    value = data.draw(VALUES)
    text = f"[{section}]\n" if section else ""
    shown = f"{value!r}".lower() if isinstance(value, bool | float) else None
    if isinstance(value, str):
        shown = '"' + "".join(f"\\U{ord(char):08x}" for char in value if not 0xD800 <= ord(char) < 0xE000) + '"'
    try:
        parse_config(f"{text}{key} = {value if shown is None else shown}")
    except BadConfig as error:
        told = str(error)
    else:
        return
    assert key in told


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_refused(text: str) -> None:
    try:
        parse_config(text)
    except BadConfig:
        return


def test_the_data_directory_is_where_a_user_has_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert default_directory() == Path("/x/echomesh")
    monkeypatch.setenv("HOME", "/h")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", unusable)
        assert default_directory() == Path("/h/.local/share/echomesh")


def test_the_access_file_of_the_data_directory_is_used_when_it_is_there(tmp_path: Path) -> None:
    config = Config(data=tmp_path)
    assert config.access_file is None
    (tmp_path / "access.toml").touch()
    assert config.access_file == tmp_path / "access.toml"
    named = Config(data=tmp_path, access=tmp_path / "other.toml")
    assert named.access_file == tmp_path / "other.toml"


def test_others_call_a_server_as_it_listens_or_by_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    assert Config().urn == "127.0.0.1"
    assert [Config(listen=Address(host, 1)).urn for host in ("", "0.0.0.0", "::", "10.0.0.1")] == [
        *["box"] * 3,
        "10.0.0.1",
    ]
    assert parse_config(CHANGED).urn == "mesh-1.example"
