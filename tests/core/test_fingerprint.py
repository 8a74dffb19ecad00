import re
import time
import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deadletter.core.failure import Failure, Trouble
from deadletter.core.fingerprint import fingerprint, normalise

SENTENCES = [
    "order {} not found",
    "timeout after {}s",
    "customer '{}' is unknown",
    "cannot reach http://bank.example/{}/pay",
    "duplicate key ({}) in index idx_orders",
    "[{}] failed: code={}, attempt {}",
    "{}",
]


def failure(
    text: str, error_type: str = "shop.BankError", frame: str = "shop:charge"
) -> Failure:
    return Failure(
        trouble=Trouble.UNKNOWN,
        code="X",
        error_type=error_type,
        text=text,
        frame=frame,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words stay", "plain words stay"),
        ("order 42 of 1,234.50", "order <n> of <n>"),
        ("id 6f1c2b9e-4f7a-4b61-9c1a-0d9b8a7c6e5d!", "id <id>!"),
        ("id deadbeef-abcd-efab-cdef-abcdefabcdef", "id <id>"),
        ("commit 9f86d081884c7d659a2feaa0c55ad015", "commit <id>"),
        ("at cus_9s6XKzkNRiz8i3", "at <id>"),
        ("at 2024-05-01T12:00:00.123Z", "at <n>-<n>-<n>T<n>:<n>:<n>Z"),
        ("from 10.1.2.3:5432", "from <n>:<n>"),
        ("from fe80::1ff:fe23:4567", "from <ip>"),
        ("to bob.smith+x@mail.example.org now", "to <email> now"),
        ("see https://a.example/b?c=d#e", "see <url>"),
        ("open /var/lib/shop/orders.db", "open <path>"),
        (r"open C:\shop\orders.db", "open <path>"),
        ("no such key: 'amount'", "no such key: <text>"),
        ('no "such thing" here', "no <text> here"),
        ("can't open the host's file", "can't open the host's file"),
        ("0x7fabcd at v1", "<id> at v<n>"),
        ("commit 3fabcde4", "commit <id>"),
        ("room bed12345678 of 12345678b", "room bed<n> of <n>b"),
        ("line one\n\tline  two", "line one line two"),
        ("", ""),
    ],
)
def test_what_varies_becomes_a_placeholder(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_a_fingerprint_tells_its_version() -> None:
    assert re.fullmatch(r"1-[0-9a-f]{16}", fingerprint("orders", failure("x")))


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint("orders", failure("order 7 not found")) == "1-e6e3c47920ff89d1"


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


@given(st.text(max_size=500))
def test_other_digits_of_any_text_do_not_matter(text: str) -> None:
    other = re.sub("[0-9]", lambda digit: str((int(digit[0]) + 3) % 10), text)

    assert normalise(text) == normalise(other)


names = st.text(min_size=1, max_size=20)


origins = st.tuples(names, names, names)


@given(origins, origins)
def test_source_type_and_frame_do_matter(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    assume(one != two)

    prints = [
        fingerprint(source, failure("x", kind, frame))
        for source, kind, frame in (one, two)
    ]

    assert prints[0] != prints[1]


def test_other_words_do_matter() -> None:
    one = fingerprint("q", failure("order not found"))
    two = fingerprint("q", failure("order not paid"))

    assert one != two


def test_longer_ids_do_not_cut_a_long_text_shorter() -> None:
    rest = " of the order is missing" * 20

    assert normalise(f"part 1{rest}") == normalise(f"part {10**30}{rest}")


def test_lone_surrogates_have_a_fingerprint_too() -> None:
    assert fingerprint("\ud800", failure("\udfff"))


PIECES = ["'", '"', "`", "a", "1", "a1", "1a-", "-", ":", "1:", "a:1", "/", "/a", "@"]
PIECES += ["a@", "a.b-c@", "://", "a://", "h://a", ".", "1.", "deadbeef-", "\\", "\\a"]
PIECES += ["_", "a_1", " ", "\n", "é", "\u0661", "x@y.", "C:\\", "0x", "fe80::", "<n>"]


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_texts_take_no_longer(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    started = time.process_time()

    for _ in range(10):
        fingerprint("q", failure(text))

    assert time.process_time() - started < 0.2  # it takes 0.002


def test_a_new_id_is_no_new_problem() -> None:
    seen = {
        fingerprint("orders", failure(f"order {uuid.UUID(int=n)} of '{n}' failed"))
        for n in range(1_000)
    }

    assert len(seen) == 1
