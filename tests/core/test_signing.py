"""Signatures: what they are good for, and what not."""

import hmac
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.core.signing import SIGNATURE_LENGTH, Keys, keys_of

ONE = Keys(b"one")
parts = st.lists(st.text(max_size=5) | st.binary(max_size=5), max_size=4)


@given(parts, parts)
def test_a_signature_verifies_exactly_what_was_signed(
    signed: list[str | bytes], asked: list[str | bytes]
) -> None:
    signature = ONE.sign("p", *signed)

    assert len(signature) == SIGNATURE_LENGTH
    assert ONE.verifies(signature, "p", *signed)
    assert not ONE.verifies(signature, "q", *signed)
    assert ONE.verifies(signature, "p", *asked) == (plain(asked) == plain(signed))


def plain(parts: list[str | bytes]) -> list[bytes]:
    return [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]


@given(st.binary(min_size=1, max_size=100), st.text(max_size=20))
def test_signatures_are_hmacs(key: bytes, part: str) -> None:
    told = f"1:p{len(part)}:{part}".encode()
    expected = urlsafe_b64encode(hmac.digest(key, told, "sha256")).decode()

    assert Keys(key).sign("p", part)[9:] == expected.rstrip("=")


@given(st.text(max_size=60))
def test_no_other_text_is_a_signature(text: str) -> None:
    assert not ONE.verifies(text, "p", "part")


def test_the_first_key_signs_and_all_verify() -> None:
    old, new = Keys(b"old"), Keys(b"new", b"old")

    assert new.verifies(old.sign("p"), "p")
    assert not old.verifies(new.sign("p"), "p")


def test_keys_are_never_shown() -> None:
    assert "secret" not in repr(Keys(b"secret"))


def test_keys_come_from_the_settings() -> None:
    assert keys_of(()) is None
    keys = keys_of(["a" * 32, "b" * 32])
    assert keys is not None
    assert keys.verifies(Keys(b"b" * 32).sign("p"), "p")
    with pytest.raises(ConfigError, match="signing key 2 has 5 characters"):
        keys_of(["a" * 32, "short"])
