import re
import time
import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deadletter.core.failure import Failure, Trouble
from deadletter.core.failure.fingerprint import (
    current,
    fingerprint,
    fingerprint_of,
    is_old,
    normalise,
    of_head,
)
from deadletter.testing.letters_bench import a_letter

SENTENCES = [
    "order {} not found",
    "timeout after {}s",
    "customer '{}' is unknown",
    "cannot reach http://bank.example/{}/pay",
    "duplicate key ({}) in index idx_orders",
    "[{}] failed: part={}, attempt {}",
    "{}",
]


def failure(text: str, error_type: str = "shop.BankError", frame: str = "shop:charge") -> Failure:
    return Failure(trouble=Trouble.UNKNOWN, code="X", error_type=error_type, text=text, frame=frame)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words stay", "plain words stay"),
        ("order 42 of 1,234.50", "order <*> of <*>"),
        ("id 6f1c2b9e-4f7a-4b61-9c1a-0d9b8a7c6e5d!", "id <*>!"),
        ("id deadbeef-abcd-efab-cdef-abcdefabcdef", "id <*>"),
        ("commit 9f86d081884c7d659a2feaa0c55ad015", "commit <*>"),
        ("lock 8e401fa627bb", "lock <*>"),
        ("lock da7069765590", "lock <*>"),
        ("lock 62866590875e", "lock <*>"),
        ("at cus_9s6XKzkNRiz8i3", "at <*>"),
        ("at cus_NffrFeUfNVHqjG", "at <*>"),
        ("at 2024-05-01T12:00:00.123Z", "at <*>"),
        ("at Wed, 01 May 2024 12:00:00 GMT", "at <*>"),
        ("from 10.1.2.3:51022", "from <*>"),
        ("from 10.1.2.3:5432", "from <*>:5432"),
        ("from fe80::1ff:fe23:4567", "from <*>"),
        ("to bob.smith+x@mail.example.org now", "to <*> now"),
        ("see https://a.example/b/17?c=d#e", "see https://a.example/b/<*>"),
        ("open /var/lib/shop/2024-05-01/x.db", "open /var/lib/shop/<*>/x.db"),
        ("no such key: 'amount'", "no such key: 'amount'"),
        ('no "such thing" here', "no <*> here"),
        ("can't open the host's file", "can't open the host's file"),
        ("0x7fabcd at v1", "<*> at <*>"),
        ("room bed12345678 of 4096b", "room <*> of <*>"),
        ("waited 30 seconds", "waited <*>"),
        ("waited 1.5 s", "waited <*>"),
        ("used 763. MiB", "used <*>"),
        ("HTTP 503 from bank 12", "HTTP 503 from bank <*>"),
        ("status code 404 for order 12", "status code 404 for order <*>"),
        ("exit status 137", "exit status 137"),
        ("[Errno 111] refused", "[Errno 111] refused"),
        ("ORA-00942: no table", "ORA-00942: no table"),
        ("line one\n\tline  two", "line one line two"),
        ("", ""),
    ],
)
def test_variable_parts_become_placeholders(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_a_fingerprint_tells_its_version() -> None:
    assert re.fullmatch(r"2-[0-9a-f]{16}", fingerprint("orders", failure("x")))


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint("orders", failure("order 7 not found")) == "2-04fc349de310b10b"


@given(st.sampled_from(SENTENCES), st.data())
def test_numbers_do_not_matter(sentence: str, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 10**18), min_size=3, max_size=3)
    one, two = data.draw(numbers), data.draw(numbers)

    assert fingerprint("q", failure(sentence.format(*one))) == fingerprint(
        "q", failure(sentence.format(*two))
    )


@given(st.sampled_from(SENTENCES), st.data())
def test_uuids_do_not_matter(sentence: str, data: st.DataObject) -> None:
    ids = st.lists(st.uuids(), min_size=3, max_size=3)
    one, two = data.draw(ids), data.draw(ids)

    assert fingerprint("q", failure(sentence.format(*one))) == fingerprint(
        "q", failure(sentence.format(*two))
    )


names = st.text(min_size=1, max_size=20)


origins = st.tuples(names, names, names)


@given(origins, origins)
def test_source_type_and_frame_do_matter(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    assume(one != two)

    prints = [fingerprint(source, failure("x", kind, frame)) for source, kind, frame in (one, two)]

    assert prints[0] != prints[1]


def test_other_words_do_matter() -> None:
    one = fingerprint("q", failure("order not found"))
    two = fingerprint("q", failure("order not paid"))

    assert one != two


def test_longer_ids_do_not_cut_a_long_text_shorter() -> None:
    rest = " of the order is missing" * 20

    assert normalise(f"part 1{rest}") == normalise(f"part {10**30}{rest}")


def test_trouble_and_code_do_matter() -> None:
    parts = ("orders", "shop.BankError", "shop:charge", "no")
    prints = {
        fingerprint_of(*parts, trouble=trouble, code=code)
        for trouble in (Trouble.TRANSIENT, Trouble.PERMANENT)
        for code in ("", "HTTP_503", "HTTP_404")
    }

    assert len(prints) == 6


def test_letters_of_version_1_get_a_fingerprint_of_this_version() -> None:
    letter = a_letter(fingerprint="1-e6e3c47920ff89d1")

    renewed = current(letter)

    assert renewed.head.fingerprint == of_head(letter.head, letter.frame)
    assert not is_old(renewed.head.fingerprint)


@pytest.mark.parametrize("name", ["2-e6e3c47920ff89d1", "f-1", "1-aa", "", "own-12"])
def test_other_fingerprints_stay(name: str) -> None:
    letter = a_letter(fingerprint=name)

    assert current(letter) is letter


def test_lone_surrogates_have_a_fingerprint_too() -> None:
    assert fingerprint("\ud800", failure("\udfff"))


PIECES = ["'", '"', "`", "a", "1", "a1", "1a-", "-", ":", "1:", "a:1", "/", "/a", "@"]
PIECES += ["a@", "a.b-c@", "://", "a://", "h://a", ".", "1.", "deadbeef-", "\\", "\\a"]
PIECES += ["_", "a_1", " ", "\n", "é", "\u0661", "x@y.", "C:\\", "0x", "fe80::", "<n>"]


PIECES += ["<*>", "(", "((1,", "[", "{'a': ", "=", "aB1", "code ", "error 1", "DETAIL"]
PIECES += ["row contains (", ")=(", "1 May 2024 ", "2024-01-01T", "tmp", "“", "a_", "+"]


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_texts_take_no_longer(piece: str) -> None:
    text = (piece * 1_000_000)[:1_000_000]
    started = time.process_time()

    for n in range(10):
        fingerprint("q", failure(f"{n}{text}"))

    assert time.process_time() - started < 0.5  # it takes 0.02 at most


def test_a_new_id_is_no_new_problem() -> None:
    seen = {
        fingerprint("orders", failure(f"order {uuid.UUID(int=n)} of '{n}' failed"))
        for n in range(1_000)
    }

    assert len(seen) == 1


@pytest.mark.parametrize("frame", ["deadletter.runtime.handlers:_fit", "deadletter:x#3f09ab"])
def test_frames_of_this_package_do_not_count(frame: str) -> None:
    assert fingerprint("orders", failure("x", frame=frame)) == fingerprint(
        "orders", failure("x", frame="")
    )


def test_modules_with_a_similar_name_count() -> None:
    names = {fingerprint("orders", failure("x", frame=f)) for f in ("", "deadletters.x:y")}

    assert len(names) == 2
