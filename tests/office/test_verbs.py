"""The table of verbs: complete, consistent with the states, and offered everywhere."""

import inspect
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from deadletter.cli.app import NAMES
from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import OPEN, AuditEntry, By, State, sources_of
from deadletter.office.letters import Letters
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.verbs import (
    BY_NAME,
    CLOSE,
    PURGE,
    REOPEN,
    RESTORE,
    REVIEW,
    VERBS,
    LetterVerbs,
    Moved,
    Verb,
    verb_of,
)
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter


class RecordedVerbs(LetterVerbs):
    """Letters that record the verbs they are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Verb, bool]] = []

    async def act(
        self, verb: Verb, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        self.asked.append((verb, unconfirmed))
        return Moved()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_every_verb_has_a_method_and_a_command(verb: Verb) -> None:
    letters = RecordedVerbs()
    method = getattr(letters, verb.name)
    options: dict[str, Any] = {"unconfirmed": True} if verb.takes_unconfirmed else {}

    await method(["a"], BY, **options)

    assert letters.asked == [(verb, verb.takes_unconfirmed)]
    assert ("unconfirmed" in inspect.signature(method).parameters) is verb.takes_unconfirmed
    assert verb.name in NAMES
    assert hasattr(LettersProtocol, verb.name)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_fits_the_states(verb: Verb) -> None:
    assert (verb.new is None) is (verb.change is not None)
    if verb.new is not None:
        assert verb.old <= sources_of(verb.new)
        if verb.takes_unconfirmed:
            assert State.REPLAYING in sources_of(verb.new)
    if verb.opposite:
        opposite = BY_NAME[verb.opposite]
        assert verb.new in opposite.old
        assert opposite.new in verb.old
        assert opposite.role is verb.role


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_its_sentences(verb: Verb) -> None:
    assert verb.about.endswith(".")
    assert len(verb.line) <= 60  # a line of `dlq --help`
    assert verb.help.startswith(verb.line)
    assert not verb.danger or "{}" in verb.danger
    assert not verb.needs_reason or verb.role is Role.ADMIN


def test_states_of_a_verb_are_told_in_words() -> None:
    assert REVIEW.states == "pending"
    assert CLOSE.states == "pending, reviewed, replayed or quarantined"
    assert PURGE.states == "not replaying"


async def test_a_verb_without_a_state_changes_letters_its_own_way(
    store: LetterStore, clock: FakeClock
) -> None:
    async def mark(store: LetterStore, ids: Iterable[str], by: By) -> list[str]:
        return await store.note(tuple(ids), "marked", by)

    marking = Verb(name="mark", about="Mark letters.", done="marked", old=OPEN, change=mark)
    letter, closed = make_letter(1), make_letter(2, state=State.CLOSED)
    await store.keep([letter, closed])

    moved = await Letters(store, clock).act(marking, [letter.id, closed.id, "z" * 24], BY)

    assert (moved.asked, moved.moved) == (3, 1)
    assert moved.skipped == {"is closed": 1, "no longer there": 1}
    assert (await store.audit(target=letter.id))[-1].detail == "marked"


async def test_letters_that_wait_are_never_reviewed(store: LetterStore, clock: FakeClock) -> None:
    letter = make_letter(state=State.REPLAYING)
    await store.keep([letter])

    with pytest.raises(ConfigError, match="unconfirmed"):
        await Letters(store, clock).act(REVIEW, [letter.id], BY, unconfirmed=True)

    assert (await store.get([letter.id]))[0].head.state is State.REPLAYING


@pytest.mark.parametrize(
    ("action", "detail", "verb"),
    [
        ("move", "pending to reviewed", REVIEW),
        ("move", "discarded to pending", RESTORE),
        ("move", "closed to pending", REOPEN),
        ("move", "replaying to closed", CLOSE),
        ("move", "pending to quarantined", None),
        ("purge", "was closed", PURGE),
        ("note", "pending to reviewed", None),
    ],
)
def test_an_audit_entry_names_its_verb(action: str, detail: str, verb: Verb | None) -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    entry = AuditEntry(seq=1, at=at, actor="anna", action=action, target="a", detail=detail)

    assert verb_of(entry) is verb
