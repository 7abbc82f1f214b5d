"""Password hashes: what is kept, what is refused, and what is never shown."""

from __future__ import annotations

import contextlib
import hashlib
import re
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomesh.errors import UsageError
from echomesh.mesh.passwords import DECOY, MAX_PASSWORD_BYTES, PasswordHash, usable

HASH = PasswordHash.of("correct horse")


def test_only_the_password_itself_matches() -> None:
    assert HASH.matches(b"correct horse")
    assert not HASH.matches(b"correct horsf")
    assert not HASH.matches(b"")
    assert not DECOY.matches(b"correct horse")


def test_every_hash_has_a_salt_of_its_own() -> None:
    other = PasswordHash.of("correct horse")
    assert other.salt != HASH.salt
    assert other.key != HASH.key


def test_the_text_says_algorithm_and_cost_and_comes_back() -> None:
    assert re.fullmatch(r"scrypt\$n=16384,r=8,p=1\$[0-9a-f]{32}\$[0-9a-f]{64}", HASH.text)
    assert PasswordHash.parse(HASH.text) == HASH


def test_the_text_is_plain_scrypt() -> None:
    _, _, salt, key = HASH.text.split("$")
    assert hashlib.scrypt(b"correct horse", salt=bytes.fromhex(salt), n=16384, r=8, p=1, dklen=32).hex() == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hunter2", "not a password hash"),
        ("", "not a password hash"),
        (HASH.text + "\n", "not a password hash"),
        (HASH.text.upper(), "not a password hash"),
        (HASH.text.replace("n=16384", "n=1024"), "its cost is not n=16384,r=8,p=1"),
        (HASH.text.replace("n=16384", f"n={2**40}"), "its cost is not"),
        (HASH.text.replace("n=16384", "n=١٦٣٨٤"), "not a password hash"),
        (HASH.text[:-2], "not whole"),
        (HASH.text.replace("$" + HASH.salt.hex(), "$00"), "not whole"),
    ],
    ids=count(),  # a salt is random
)
def test_what_is_no_hash_of_ours_is_refused_and_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        PasswordHash.parse(text)
    assert reason in str(caught.value)
    assert "echomesh clients passwd" in str(caught.value)
    assert not text or text not in str(caught.value)


@given(st.one_of(st.text(), st.text("scrypt$n=16384,r81pabcdef0123456789"), st.from_regex(r"scrypt\$n=\d+,r=8.*")))
def test_random_text_is_a_hash_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert PasswordHash.parse(text).text == text


@given(st.data())
def test_a_damaged_hash_is_a_hash_or_a_usage_error(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(HASH.text)))
    cut = data.draw(st.integers(0, 5))
    text = HASH.text[:at] + data.draw(st.text(max_size=5)) + HASH.text[at + cut :]
    with contextlib.suppress(UsageError):
        assert PasswordHash.parse(text).text == text


@pytest.mark.parametrize(
    "password", ["", "x" * (MAX_PASSWORD_BYTES + 1), "é" * (MAX_PASSWORD_BYTES // 2 + 1), "\ud800"]
)
def test_empty_endless_and_unspeakable_passwords_are_refused(password: str) -> None:
    assert usable(password) is None
    with pytest.raises(UsageError, match="1 to 1024 bytes of UTF-8"):
        PasswordHash.of(password)


def test_the_longest_password_is_taken_whole() -> None:
    assert usable("x" * MAX_PASSWORD_BYTES) == b"x" * MAX_PASSWORD_BYTES
    assert usable(None) is None
    longest = PasswordHash.of("x" * MAX_PASSWORD_BYTES)
    assert longest.matches(b"x" * MAX_PASSWORD_BYTES)
    assert not longest.matches(b"x" * (MAX_PASSWORD_BYTES - 1))


def test_no_repr_shows_salt_or_key() -> None:
    assert repr(HASH) == str(HASH) == "PasswordHash()"
