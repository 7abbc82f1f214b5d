"""The access file's language: what it grants, and how it says what is wrong."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echomesh.errors import BadAccessFile, UsageError
from echomesh.mesh.access import EVERYTHING, Access, ClientRights, open_access, parse_client_id
from echomesh.mesh.passwords import PasswordHash
from echomesh.mesh.ports import AccessPort, Rights
from tests.support.counts import count

HASH = PasswordHash(bytes(16), bytes(32)).text
SHOP = f"""
# the shop of the demonstration
[clients.shop]
password = "{HASH}"
environments = ["PRD", "TST"]
publish = ["orders/**", "/carts/*"]
subscribe = ["orders/**", "*/alerts"]
publishes_per_second = 5000

[clients."gate 7"]
password = "{HASH}"
admin = true
server = true
"""


def entry(line: str, name: str = "shop", password: str = HASH) -> str:
    return f'[clients.{name}]\npassword = "{password}"\n{line}\n'


def refusal(text: str) -> str:
    with pytest.raises(BadAccessFile) as caught:
        Access.parse(text, "/etc/access.toml")
    assert (caught.value.path, str(caught.value)) == ("/etc/access.toml", f"/etc/access.toml: {caught.value.reason}")
    return caught.value.reason


def rights_of(text: str, name: str = "shop") -> ClientRights:
    found = Access.parse(text).rights(name)
    assert found is not None
    return found


class TestRights:
    def test_an_entry_grants_what_it_says_and_nothing_else(self) -> None:
        shop: Rights = rights_of(SHOP)
        assert [name for name in ("TST", "VAL", "PRD", "tst", "") if shop.may_use(name)] == ["TST", "PRD"]
        assert shop.may_publish("orders")
        assert shop.may_publish("orders/eu/created")
        assert shop.may_publish("carts/7")
        assert not shop.may_publish("carts/7/items")
        assert not shop.may_publish("stock")
        assert shop.may_subscribe("orders/*/created")
        assert shop.may_subscribe("eu/alerts")
        assert not shop.may_subscribe("**")
        assert not shop.may_subscribe("carts/7")
        assert (shop.publishes_per_second, shop.admin, shop.server) == (5000.0, False, False)

    def test_no_entry_means_no(self) -> None:
        access = Access.parse(SHOP)
        assert (access.rights("Shop"), access.get("nobody"), access.rights("")) == (None, None, None)
        gate: Rights = rights_of(SHOP, "gate 7")
        assert not any(gate.may_use(name) for name in ("TST", "VAL", "PRD"))
        assert not gate.may_publish("orders")
        assert not gate.may_subscribe("orders")
        assert (gate.publishes_per_second, gate.admin, gate.server) == (None, True, True)

    def test_an_empty_file_knows_nobody(self) -> None:
        assert len(Access.parse("")) == len(Access.parse("[clients]\n")) == len(Access()) == 0

    def test_a_union_of_filters_is_not_considered(self) -> None:
        rights = ClientRights(subscribe=("a/b", "a/*/**"))
        assert rights.may_subscribe("a/b")
        assert rights.may_subscribe("a/*")
        assert not rights.may_subscribe("a/**")

    @pytest.mark.parametrize("name", ["", "a//b", "a*", "\ud800", "x" * 300])
    def test_what_is_no_topic_is_not_allowed(self, name: str) -> None:
        assert not EVERYTHING.may_publish(name)
        assert not EVERYTHING.may_subscribe(name)
        assert not EVERYTHING.may_publish("a/*")

    def test_a_client_id_is_never_a_pattern(self) -> None:
        access = Access.parse(entry("", '"a?[b].+"'))
        assert access.get("a?[b].+") is not None
        assert access.get("ax[b].+") is None
        for name in ("*", "a/*", "**"):
            assert "without '*'" in refusal(entry("", json.dumps(name)))


class TestClientIds:
    @pytest.mark.parametrize("name", ["shop", "a b", "ä/ö.7", "日本", "x" * 255, "é" * 127, "[red]", "../etc"])
    def test_printable_ones_are_fine(self, name: str) -> None:
        assert parse_client_id(name) == name

    @pytest.mark.parametrize(
        "name",
        ["", " a", "a ", "a\n", "\x1b[31m", "a\0", "\u202eabc", "\ud800", "x" * 256, "é" * 128, "x" * 10**6, "*"],
    )
    def test_others_are_refused_in_one_short_sentence(self, name: str) -> None:
        with pytest.raises(UsageError, match="is not a client id: use 1 to 255 bytes") as caught:
            parse_client_id(name)
        assert len(str(caught.value)) < 300


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                "[clients.shop\n",
                "it is not TOML: Expected ']' at the end of a table declaration (at line 1, column 14)",
            ),
            ("x = [", "it is not TOML:"),
            ("[[" * 5000, "it is not TOML:"),
            ("x = " + "[" * 5000, "it is not TOML: it is nested too deeply"),
            ("x = " + "9" * 5000, "it is not TOML: Exceeds the limit"),
            ("[client.shop]\n", "unknown key client: entries are tables such as [clients.shop]"),
            ("clients = 3\n", "clients wants tables such as [clients.shop]"),
            ("[clients]\nshop = 3\n", "clients.shop wants a table: [clients.shop]"),
            ("[[clients.shop]]\n", "clients.shop wants a table: [clients.shop]"),
            ("[clients.shop]\n", "clients.shop has no password; set one with: echomesh clients passwd shop"),
            (entry('publsh = ["a"]'), "clients.shop has an unknown key publsh: did you mean publish?"),
            (entry("zzz = 1"), "clients.shop has an unknown key zzz: it may be password, environments, publish, "),
            (
                entry("", "shop.eu"),
                'clients.shop has no tables; a client id with a dot stands in quotes: [clients."shop.eu"',
            ),
            (entry('publish = "a"'), 'clients.shop.publish wants a list of texts, such as ["orders/**"]'),
            (entry("subscribe = [1]"), 'clients.shop.subscribe wants a list of texts, such as ["orders/**"]'),
            (
                entry('publish = ["a", "b//c"]'),
                "clients.shop.publish[1]: 'b//c' is not a filter: it has an empty segment",
            ),
            (entry('publish = ["a*"]'), "clients.shop.publish[0]: 'a*' is not a filter"),
            (entry('environments = ["prod"]'), "clients.shop.environments has 'prod': an environment is TST, VAL, PRD"),
            (entry('environments = "TST"'), 'clients.shop.environments wants a list of texts, such as ["TST"]'),
            *(
                (entry(f"publishes_per_second = {value}"), "clients.shop.publishes_per_second wants a number above 0")
                for value in ("0", "-1", "true", '"5"', "nan", "inf", "1e99", "[5]", "1979-05-27")
            ),
            (entry("admin = 1"), "clients.shop.admin wants true or false"),
            (entry('server = "yes"'), "clients.shop.server wants true or false"),
            (entry("", '"a\\u0007"'), 'clients."a\\u0007": '),
        ],
        ids=lambda value: value[:40] if isinstance(value, str) else "",
    )
    def test_it_is_named_with_its_place(self, text: str, reason: str) -> None:
        assert refusal(text).startswith(reason)

    @pytest.mark.parametrize("value", ['"hunter2"', "['hunter2']", '"scrypt$hunter2"', '{ text = "hunter2" }'])
    def test_a_password_that_stands_there_openly_is_not_repeated(self, value: str) -> None:
        reason = refusal(f"[clients.shop]\npassword = {value}\n")
        assert reason.startswith("clients.shop.password")
        assert "hunter2" not in reason

    def test_what_is_said_stays_short_whatever_the_file_holds(self) -> None:
        assert len(refusal(entry(f"{'k' * 100_000} = 1"))) < 500
        assert len(refusal(entry("", json.dumps("n" * 100_000)))) < 500
        assert len(refusal(entry(f'publish = ["{"f" * 100_000}"]'))) < 500


VALUES = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.sampled_from([HASH, "TST", "a/**"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
KEYS = st.one_of(
    st.sampled_from(
        ["password", "environments", "publish", "subscribe", "publishes_per_second", "admin", "server", "clients"]
    ),
    st.text(max_size=5),
)


def parsed(text: str) -> Access | None:
    try:
        return Access.parse(text)
    except BadAccessFile:
        return None


class TestFuzz:
    @given(st.text())
    @example("\ud800")
    @example("\ufeff[clients]")
    def test_random_text_is_an_access_file_or_refused(self, text: str) -> None:
        parsed(text)

    @given(st.dictionaries(st.text(max_size=5), st.dictionaries(KEYS, VALUES, max_size=4), max_size=3))
    def test_random_entries_are_an_access_file_or_refused(self, clients: dict[str, dict[str, object]]) -> None:
        lines = []
        for name, values in clients.items():
            lines.append(f"[clients.{json.dumps(name)}]")
            lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
        access = parsed("\n".join(lines))
        if access is not None:
            assert {client.client_id for client in access} == set(clients)

    @given(st.randoms(use_true_random=False))
    def test_a_damaged_file_is_an_access_file_or_refused(self, random: Random) -> None:
        for _ in range(count(5, 50)):
            at = random.randrange(len(SHOP))
            cut = random.randrange(4)
            junk = "".join(chr(random.choice([34, 39, 91, 93, 61, 10, 92, 46, 0, 65, 8364])) for _ in range(cut))
            parsed(SHOP[:at] + junk + SHOP[at + random.randrange(4) :])


class TestSnapshots:
    def test_what_did_not_change_is_the_same_object(self) -> None:
        before = Access.parse(SHOP)
        after = Access.parse(SHOP.replace("5000", "6000"), before=before)
        assert after.get("gate 7") is before.get("gate 7")
        assert after.get("shop") is not before.get("shop")
        assert after.changed_since(before) == {"shop"}

    def test_clients_that_came_and_went_are_changes(self) -> None:
        before, after = Access.parse(entry("", "a")), Access.parse(entry("", "b"))
        assert after.changed_since(before) == {"a", "b"}
        assert after.changed_since(after) == frozenset()

    def test_a_new_password_is_a_change(self) -> None:
        other = PasswordHash(bytes(16), b"\1" * 32).text
        assert Access.parse(entry("", password=other)).changed_since(Access.parse(entry(""))) == {"shop"}

    def test_no_repr_shows_a_hash(self) -> None:
        access = Access.parse(SHOP)
        assert HASH[-20:] not in repr(access) + repr(access.get("shop")) + repr(list(access))


class TestOpenAccess:
    def test_everybody_may_everything(self) -> None:
        port: AccessPort = open_access()
        answers: list[Rights | None] = []
        port.verify("anybody", None, answers.append)
        port.verify("anybody", "some password", answers.append)
        assert answers == [EVERYTHING, EVERYTHING]
        rights = port.rights("anybody")
        assert rights is not None
        assert rights.may_publish("a/b/c")
        assert rights.may_subscribe("**")
        assert all(rights.may_use(name) for name in ("TST", "VAL", "PRD"))
        assert (rights.admin, rights.server, rights.publishes_per_second) == (True, True, None)

    def test_but_not_as_a_pattern(self) -> None:
        answers: list[Rights | None] = []
        open_access().verify("*", None, answers.append)
        assert answers == [None]
