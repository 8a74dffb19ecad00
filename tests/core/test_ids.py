import uuid
from base64 import b32encode
from hashlib import blake2b

from hypothesis import assume, given
from hypothesis import strategies as st

from deadletter.core.ids import body_digest, letter_id, uuid7

millis = st.integers(0, 2**48 - 1)
tails = st.integers(0, 2**74 - 1)
parts = st.text(max_size=20)


@given(millis, tails)
def test_a_uuid7_is_one(moment: int, tail: int) -> None:
    made = uuid.UUID(uuid7(moment, tail))

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert str(made) == uuid7(moment, tail)
    assert made.int >> 80 == moment


@given(millis, tails, tails)
def test_ids_of_a_later_millisecond_sort_behind(moment: int, a: int, b: int) -> None:
    assume(moment < 2**48 - 1)

    assert uuid7(moment, a) < uuid7(moment + 1, b)


@given(millis, tails, tails)
def test_ids_of_one_millisecond_differ_by_every_bit_and_sort_by_it(
    moment: int, a: int, b: int
) -> None:
    assert (uuid7(moment, a) < uuid7(moment, b)) == (a < b)


@given(parts, parts, parts, st.binary(max_size=16))
def test_a_letter_id_is_a_hash_in_base32(
    source: str, part: str, message: str, twist: bytes
) -> None:
    hashed = blake2b(digest_size=15)
    for text in (source, part, message):
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(4, "big") + encoded)
    hashed.update(twist)

    made = letter_id(source, part, message, twist)

    assert made == b32encode(hashed.digest()).decode().lower()


@given(parts, parts, parts)
def test_a_letter_id_is_short_and_plain(source: str, part: str, message: str) -> None:
    made = letter_id(source, part, message)

    assert len(made) == 24
    assert made.isalnum()
    assert made.lower() == made
    assert made == letter_id(source, part, message)


@given(st.tuples(parts, parts, parts), st.tuples(parts, parts, parts))
def test_other_messages_have_other_letter_ids(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    assume(one != two)

    assert letter_id(*one) != letter_id(*two)


def test_where_one_part_ends_matters() -> None:
    assert letter_id("ab", "c", "d") != letter_id("a", "bc", "d")
    assert letter_id("a", "", "b") != letter_id("a", "b", "")


def test_a_letter_id_never_changes() -> None:
    assert letter_id("orders", "", "m-1") == letter_id("orders", "", "m-1", b"")
    assert letter_id("orders", "", "m-1") == "6vdwbizdpodls6qyfjwk7jlc"


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_another_body_sets_a_letter_apart(one: bytes, two: bytes) -> None:
    assume(one != two)

    ids = {letter_id("q", "", "m", body_digest(body)) for body in (one, two)}

    assert len(ids | {letter_id("q", "", "m")}) == 3


def test_lone_surrogates_have_an_id_too() -> None:
    assert letter_id("\ud800", "", "\udfff")
