"""Marks: what sums by identity are made of, with a key and without."""

from collections import Counter

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import Outcome
from deadletter.core.ids import body_digest
from deadletter.core.seals import MASK, NO_KEY, Marks, Sealing, item_changes
from deadletter.testing.letters_bench import a_letter

_KEY, _OTHER = b"0123456789abcdef" * 2, b"fedcba9876543210" * 2
PLAIN, KEYED = Sealing().marks(), Sealing(_KEY).marks()


@pytest.mark.parametrize("marks", [PLAIN, KEYED])
@pytest.mark.parametrize("id_", ["m-1", "\ud800", "ä"])
def test_the_marks_of_messages_add_up_however_they_are_made(marks: Marks, id_: str) -> None:
    messages = [a_letter(b"{%d}" % n).message for n in range(3)]
    messages.append(replace(messages[0], id=id_))

    total = marks.messages(messages)

    assert total == sum(marks.message(one.id, one.body) for one in messages) & MASK
    if marks is KEYED:  # and by the digest alone, as copies of letters are known
        copies = [marks.copy(one.id, body_digest(one.body), 0) for one in messages]
        assert total == sum(copies) & MASK


@pytest.mark.parametrize("marks", [PLAIN, KEYED])
@pytest.mark.parametrize("name", ["x", "\ud800", "ä"])
def test_the_marks_of_texts_add_up_however_they_are_made(marks: Marks, name: str) -> None:
    names = ["a", "b", name]
    counts = dict(zip(names, (3, -1, 2), strict=True))
    total = sum(marks.text(one) * n for one, n in counts.items()) & MASK

    assert marks.texts(counts) == total
    assert marks.groups(counts) == total
    assert marks.groups(counts) == total  # and those that it remembers
    assert marks.ids(names) == sum(map(marks.text, names)) & MASK
    assert marks.ids([]) == marks.groups({}) == 0


def test_a_mark_depends_on_the_key_the_id_and_the_body() -> None:
    rotated = Sealing(_OTHER, _KEY)
    found = {
        marks.message(id_, body)
        for marks in (PLAIN, KEYED, rotated.marks())
        for id_ in ("m-1", "m-2")
        for body in (b"a", b"b")
    }

    assert len(found) == 12
    assert rotated.marks(KEYED.key_id).message("m-1", b"a") == KEYED.message("m-1", b"a")
    assert len({marks.text("x") for marks in (PLAIN, KEYED, rotated.marks())}) == 3


def test_marks_of_a_key_that_is_not_ours_are_plain() -> None:
    unknown = Sealing(_OTHER).marks(KEYED.key_id)

    assert unknown.key_id == NO_KEY
    assert unknown.text("x") == PLAIN.text("x")


def test_counts_of_outcomes_add_up_after_moves() -> None:
    sums: Counter[Outcome] = Counter()
    counts: Counter[Outcome] = Counter()
    for old, new, letters in (
        (None, Outcome.PLANNED, [1, 2, 3]),
        (Outcome.PLANNED, Outcome.SENDING, [1, 2]),
        (Outcome.SENDING, Outcome.SENT, [1, 2]),
        (Outcome.SENT, Outcome.CONFIRMED, [2]),
        (Outcome.SENT, Outcome.FAILED, []),
    ):
        moves = {(7, old, new): letters}
        for _, outcome, n, more, key_id in item_changes(moves, lambda *_: KEYED):
            assert key_id == KEYED.key_id
            counts[outcome] += n
            sums[outcome] = (sums[outcome] + more) & MASK

    assert {outcome: n for outcome, n in counts.items() if n} == {
        Outcome.PLANNED: 1,
        Outcome.SENT: 1,
        Outcome.CONFIRMED: 1,
    }
    assert {outcome: total for outcome, total in sums.items() if total} == {
        Outcome.PLANNED: KEYED.item(7, 3, "planned"),
        Outcome.SENT: KEYED.item(7, 1, "sent"),
        Outcome.CONFIRMED: KEYED.item(7, 2, "confirmed"),
    }
