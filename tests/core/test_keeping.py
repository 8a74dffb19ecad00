"""What keeping a letter means, by the rules that all stores follow."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.filing_rig import file
from deadletter.core.attempts import append, read
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import DeadLetter, State
from deadletter.core.letter_filing import FINISHED, Filed, Known, check_expiry, check_purge
from deadletter.core.message import Lineage
from deadletter.testing.fakes import START
from deadletter.testing.letters_bench import a_letter, tried_again


class Shelf:
    """As little of a store as the rules need."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.asked: list[Sequence[str]] = []

    def keep(self, *letters: DeadLetter) -> list[Filed]:
        filed = file(letters, self._look_up)
        self.known |= {one.id: one.after for one in filed if one.after is not None}
        return filed

    def _look_up(self, ids: Sequence[str]) -> dict[str, Known]:
        self.asked.append(ids)
        return {id_: self.known[id_] for id_ in ids if id_ in self.known}


_attempts = st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True)


def _told(message_id: str, numbers: list[int]) -> DeadLetter:
    """A letter whose story has attempts of these numbers, one a second."""
    letter = a_letter(message_id=message_id, attempts=max(numbers))
    history = ""
    for number in numbers:
        at = START + timedelta(seconds=number)
        history = append(history, replace(letter.story()[0], number=number, at=at))
    return replace(letter, history=history)


@given(stories=st.lists(_attempts, min_size=1, max_size=5))
def test_attempts_never_shrink_and_are_never_told_twice(stories: list[list[int]]) -> None:
    shelf = Shelf()
    before = 0

    for numbers in stories:
        (filed,) = shelf.keep(_told("m", numbers))
        known = shelf.known[filed.id]

        assert known.head.attempts >= max(before, *numbers)
        before = known.head.attempts
    lines = known.history.split("\n")
    assert len(lines) == len(set(lines))


@given(stories=st.lists(_attempts, min_size=1, max_size=4))
def test_filing_the_same_letter_again_changes_nothing(stories: list[list[int]]) -> None:
    shelf = Shelf()
    letters = [_told("m", numbers) for numbers in stories]
    shelf.keep(*letters)
    before = dict(shelf.known)

    (again,) = shelf.keep(letters[-1])

    assert (again.after, again.died) == (None, False)
    assert shelf.known == before


@given(bodies=st.lists(st.binary(max_size=1), min_size=1, max_size=8), data=st.data())
def test_no_body_disappears_however_they_are_batched(
    bodies: list[bytes], data: st.DataObject
) -> None:
    letters = [a_letter(body, message_id="m") for body in bodies]
    cut = data.draw(st.integers(0, len(letters)))
    shelf = Shelf()

    filed = shelf.keep(*letters[:cut]) + shelf.keep(*letters[cut:])

    assert len({one.id for one in filed}) == len(set(bodies))
    assert sum(one.before is None for one in filed) == len(set(bodies))
    for one in filed:
        assert one.conflict == (one.letter.message.body != bodies[0])


def test_a_letter_that_is_kept_apart_is_found_again_behind_an_unknown_copy() -> None:
    shelf = Shelf()
    known, apart = (a_letter(body, message_id="x") for body in (b"a", b"b"))
    shelf.keep(known, apart)
    del shelf.known[known.id]  # purged
    lineage = Lineage(letter_id="gone", generation=1, campaign="c-1")
    copy = replace(known, message=replace(known.message, lineage=lineage))

    filed = shelf.keep(copy, apart)

    assert [one.before is None for one in filed] == [True, False]


def test_letters_are_looked_up_in_one_go() -> None:
    shelf = Shelf()

    shelf.keep(*(a_letter(message_id=f"m-{n % 3}") for n in range(9)))
    shelf.keep(a_letter(b"a", message_id="x"), a_letter(b"b", message_id="x"))

    assert [len(ids) for ids in shelf.asked] == [3, 1, 1]


def test_a_long_story_that_was_cut_is_not_news_when_it_is_told_again() -> None:
    letter = a_letter(attempts=30)
    for number in range(2, 31):
        at = START + timedelta(seconds=number)
        line = replace(letter.story()[0], number=number, at=at)
        letter = replace(letter, history=append(letter.history, line))
    shelf = Shelf()
    shelf.keep(letter)
    later = tried_again(letter)
    shelf.keep(later)

    (again,) = shelf.keep(letter)

    assert again.after is None
    story = read(shelf.known[letter.id].history)
    assert story[-1].number == 31
    assert shelf.known[letter.id].head.attempts == 31


def test_attempts_of_each_generation_are_added_up() -> None:
    shelf = Shelf()
    letter = replace(a_letter(attempts=3), history="")
    shelf.keep(letter)

    for generation, attempts in [(1, 2), (1, 4), (2, 3), (2, 3), (1, 9)]:
        lineage = Lineage(letter_id=letter.id, generation=generation, campaign="c")
        shelf.keep(
            replace(
                letter,
                head=replace(letter.head, attempts=attempts),
                message=replace(letter.message, lineage=lineage),
            )
        )

    assert shelf.known[letter.id].head.attempts == 3 + 4 + 3


@pytest.mark.parametrize("state", State)
def test_only_finished_letters_expire(state: State) -> None:
    if state in FINISHED:
        check_expiry([state])
        return

    with pytest.raises(ConfigError, match=f"that are {state} never expire"):
        check_expiry([State.CLOSED, state])


@pytest.mark.parametrize("state", State)
def test_only_a_letter_that_is_out_cannot_be_purged(state: State) -> None:
    if state is not State.REPLAYING:
        check_purge("id", state)
        return

    with pytest.raises(Conflict, match="letter id is replaying"):
        check_purge("id", state)
