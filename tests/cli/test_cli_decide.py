"""dlq review, note, close, reopen, discard, restore, purge."""

from collections.abc import Callable

import pytest

from cli.conftest import Command
from deadletter.core.letter import State
from office.making import make_letter, make_letters


def state_of(dlq: Command, letter_id: str) -> State:
    letters = dlq.do(lambda engine: engine.letters.get([letter_id]))
    return letters[0].head.state


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["review"], State.PENDING, State.REVIEWED),
        (["close"], State.REVIEWED, State.CLOSED),
        (["reopen"], State.CLOSED, State.PENDING),
        (["reopen", "--unconfirmed"], State.REPLAYING, State.PENDING),
        (["close", "--unconfirmed"], State.REPLAYING, State.CLOSED),
        (["discard", "--yes", "--unconfirmed"], State.REPLAYING, State.DISCARDED),
        (["discard", "--yes"], State.PENDING, State.DISCARDED),
        (["restore"], State.DISCARDED, State.PENDING),
    ],
)
def test_a_letter_is_moved_by_its_id(
    dlq: Command, words: list[str], before: State, after: State
) -> None:
    letter = make_letter(state=before)
    dlq.keep(letter)

    ran = dlq(*words, letter.id[:8], "--reason", "why not", "--actor", "anna")

    assert ran.code == 0, ran.err
    assert ran.out.startswith("1 letter ")
    assert state_of(dlq, letter.id) is after
    (entry,) = dlq.do(lambda engine: engine.letters.audit(target=letter.id))
    assert (entry.actor, entry.reason) == ("anna", "why not")


def test_letters_are_moved_by_a_search(dlq: Command) -> None:
    dlq.keep(*make_letters(5), make_letter(9, source="payments"))

    ran = dlq("review", "source:orders", "is:pending", "--json")

    assert ran.document == {"asked": 5, "moved": 5, "skipped": {}}


def test_a_limit_is_kept(dlq: Command) -> None:
    dlq.keep(*make_letters(5))

    assert dlq("review", "*", "--limit", "2", "--json").document["moved"] == 2


def test_a_plain_word_is_a_search_if_it_is_said_to_be_text(dlq: Command) -> None:
    dlq.keep(make_letter(1), make_letter(2, error_text="insufficient funds"))

    ran = dlq("review", "insufficient", "--text", "--json")

    assert ran.document["moved"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "5"],
        ["replay", "plan", "5"],
        ["replay", "start", "is:pending", "timeout"],
        ["discard", "n", "--yes"],
        ["purge", "n", "--reason", "x", "--yes"],
        ["close", "insufficient"],
        ["review", "n"],
        ["reopen", "n"],
        ["restore", "n"],
        ["note", "seen", "n"],
    ],
)
def test_bare_words_change_nothing(dlq: Command, words: list[str]) -> None:
    letter = make_letter(1)
    dlq.keep(letter)

    ran = dlq(*words)

    assert ran.code == 2
    assert "neither the id of a letter nor a field" in ran.err
    assert "--text" in ran.err
    assert dlq("list", "--json").document["state"] == "pending"


def test_one_wrong_id_among_others_moves_nothing(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    ran = dlq("review", letter.id, "aaaaaaaa")

    assert ran.code == 3
    assert state_of(dlq, letter.id) is State.PENDING


def test_letters_in_another_state_are_left_and_said(dlq: Command) -> None:
    pending, closed = make_letter(1), make_letter(2, state=State.CLOSED)
    dlq.keep(pending, closed)

    ran = dlq("review", pending.id, closed.id)
    again = dlq("review", pending.id, closed.id)

    assert ran.code == 0
    assert "1 letter skipped: is closed" in ran.out
    assert again.code == 4
    assert "nothing was reviewed" in again.err


@pytest.mark.parametrize("words", [["close"], ["reopen"], ["discard", "--yes"]])
def test_a_letter_that_waits_for_an_outcome_is_left_with_a_hint(
    dlq: Command, words: list[str]
) -> None:
    letter = make_letter(state=State.REPLAYING)
    dlq.keep(letter)

    ran = dlq(*words, letter.id)

    assert ran.code == 4
    assert "1 letter skipped: is replaying" in ran.out
    assert "include them with --unconfirmed" in ran.err
    assert state_of(dlq, letter.id) is State.REPLAYING


@pytest.mark.parametrize("command", ["review", "close", "discard", "replay"])
def test_no_letters_named_is_a_usage_error(dlq: Command, command: str) -> None:
    dlq.keep(make_letter())

    ran = dlq(command)

    assert ran.code == 2
    assert "name letters by their ids" in ran.err


def test_no_match_is_not_found(dlq: Command) -> None:
    dlq.keep(make_letter())

    ran = dlq("close", "source:nowhere")

    assert ran.code == 3
    assert "no letter matches source:nowhere" in ran.err


def test_a_note_is_written(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    assert dlq("note", "ask Bo", letter.id).code == 0
    assert dlq("note", "", letter.id).code == 2

    (entry,) = dlq.do(lambda engine: engine.letters.audit(target=letter.id))
    assert entry.detail == "ask Bo"


def test_destructive_commands_refuse_without_yes_when_nobody_is_there(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    discard = dlq("discard", letter.id)
    purge = dlq("purge", letter.id, "--reason", "r")

    assert (discard.code, purge.code) == (2, 2)
    assert "this would discard 1 letter: add --yes" in discard.err
    assert state_of(dlq, letter.id) is State.PENDING


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 4), ("", 4)])
def test_destructive_commands_ask_a_person(
    dlq: Command, person: Callable[[str], None], answer: str, code: int
) -> None:
    letter = make_letter()
    dlq.keep(letter)
    person(answer)

    ran = dlq("discard", letter.id)

    assert ran.code == code
    assert "This will discard 1 letter. Continue?" in ran.err
    after = State.DISCARDED if code == 0 else State.PENDING
    assert state_of(dlq, letter.id) is after


@pytest.mark.parametrize(("answer", "code"), [("3", 0), ("y", 4), ("4", 4)])
def test_many_letters_need_their_number_typed(
    dlq: Command, person: Callable[[str], None], answer: str, code: int
) -> None:
    dlq.keep(*make_letters(3))
    person(answer)

    ran = dlq("purge", "*", "--reason", "spam")

    assert ran.code == code
    assert "Type 3 to continue" in ran.err


def test_purging_needs_a_reason_even_with_yes(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    ran = dlq("purge", letter.id, "--yes")

    assert ran.code == 2
    assert "--reason" in ran.err


def test_purged_letters_are_deleted(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    assert dlq("purge", letter.id, "--yes", "--reason", "spam").code == 0
    assert dlq("show", letter.id).code == 3
    assert dlq("verify").code == 0
