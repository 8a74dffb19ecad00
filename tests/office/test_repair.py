from collections.abc import Sequence

import pytest

from deadletter.core.errors import ConfigError
from deadletter.core.letter import By, Changes, DeadLetter, State
from deadletter.core.message import Message
from deadletter.core.patch import parse_patch
from deadletter.office.letters import Letters
from deadletter.office.repair import Repairs, RepairVerdict
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter

PATCH = parse_patch('{"currency": "EUR"}', '{"currency": "eur"}')
CHANGE = RepairVerdict.CHANGE


def fits(mailbox: str, message: Message) -> bool:
    return b"unreadable" not in message.body


@pytest.fixture
def repairs(store: LetterStore) -> Repairs:
    return Repairs(store, fits)


@pytest.fixture
async def letters(store: LetterStore) -> Sequence[DeadLetter]:
    """One letter of each verdict, and a second one that would change."""
    bodies = [
        b'{"currency":"eur","id":1}',
        b'{ "currency": "eur", "id": 2.50 }',
        b'{"currency": "EUR"}',
        b'{"currency": "usd"}',
        b'["eur"]',
        b"eur \xff",
        b'{"currency": "eur", "x": "unreadable"}',
        b'{"currency": "eur"}',
    ]
    made = [make_letter(number, body=body) for number, body in enumerate(bodies, 1)]
    made[-1] = make_letter(8, body=bodies[-1], state=State.CLOSED)
    await store.keep(made)
    return made


async def bodies_of(store: LetterStore, letters: Sequence[DeadLetter]) -> list[bytes]:
    found = {one.id: one.message.body for one in await store.get([one.id for one in letters])}
    return [found[one.id] for one in letters]


async def test_a_plan_tells_what_would_happen_and_changes_nothing(
    store: LetterStore, repairs: Repairs, letters: Sequence[DeadLetter]
) -> None:
    ids = [one.id for one in letters]
    plan = await repairs.plan([*ids, "nobody"], PATCH)

    assert plan.total == 9
    assert plan.verdicts == {
        CHANGE: 2,
        RepairVerdict.UNCHANGED: 1,
        RepairVerdict.OTHER_VALUE: 1,
        RepairVerdict.OTHER_SHAPE: 1,
        RepairVerdict.NOT_JSON: 1,
        RepairVerdict.UNREADABLE: 1,
        RepairVerdict.WRONG_STATE: 1,
        RepairVerdict.GONE: 1,
    }
    assert plan.changes == 2
    assert plan.letters[RepairVerdict.OTHER_VALUE] == (ids[3],)
    assert {one.letter_id for one in plan.samples} == set(ids[:2])
    lines = [line.text for one in plan.samples for part in one.differences for line in part.lines]
    assert '  "currency": "EUR",' in lines
    assert await bodies_of(store, letters) == [one.message.body for one in letters]


async def test_a_repair_edits_the_letters_that_fit_and_keeps_their_originals(
    store: LetterStore, repairs: Repairs, letters: Sequence[DeadLetter]
) -> None:
    ids = [one.id for one in letters]
    done = await repairs.apply([*ids, "nobody"], PATCH, BY)

    assert (done.asked, done.moved) == (9, 2)
    assert done.skipped == {
        "already have these values": 1,
        "have another value there": 1,
        "have another shape there": 1,
        "are not JSON that can be changed": 1,
        "would not fit the type of their handler": 1,
        "are not open": 1,
        "no longer there": 1,
    }
    after = await bodies_of(store, letters)
    assert after[:2] == [b'{"currency":"EUR","id":1}', b'{ "currency": "EUR", "id": 2.50 }']
    assert after[2:] == [one.message.body for one in letters[2:]]
    (first,) = await store.get(ids[:1])
    assert first.original == letters[0].message
    (edit,) = [one for one in await store.audit(target=ids[0]) if one.action == "edit"]
    assert (edit.actor, edit.reason, edit.detail) == ("anna", "because", "body (25 to 25 bytes)")


async def test_a_repair_that_is_repeated_changes_nothing(
    store: LetterStore, repairs: Repairs, letters: Sequence[DeadLetter]
) -> None:
    ids = [one.id for one in letters]
    await repairs.apply(ids, PATCH, BY)
    before = await store.get(ids)

    again = await repairs.apply([*ids, *ids], PATCH, BY)

    assert (again.asked, again.moved) == (8, 0)
    assert await store.get(ids) == before


async def test_what_is_done_before_a_repair_is_stopped_stays_done(
    store: LetterStore, repairs: Repairs
) -> None:
    made = [make_letter(number, body=b'{"currency":"eur"}') for number in range(250)]
    await store.keep(made)
    ids = [one.id for one in made]

    async for step in repairs.apply_in_steps(ids, PATCH, BY):
        assert (step.so_far.asked, step.so_far.moved) == (200, 200)
        assert set(step.ids) == set(ids[:200])
        break

    rest = await repairs.apply(ids, PATCH, BY)
    assert (rest.moved, rest.skipped) == (50, {"already have these values": 200})


class Meddling:
    """A store in which somebody else edits each letter just before."""

    def __init__(self, store: LetterStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        theirs = Changes(body=b'{"currency": "chf"}').made_to(message)
        await self._store.edit(id, theirs, revision=revision, by=By("bob"))
        return await self._store.edit(id, message, revision=revision, by=by)


async def test_what_somebody_else_changed_meanwhile_is_not_overwritten(
    store: LetterStore, letters: Sequence[DeadLetter]
) -> None:
    repairs = Repairs(Meddling(store))  # type: ignore[arg-type]
    done = await repairs.apply([letters[0].id], PATCH, BY)

    assert (done.moved, done.skipped) == (0, {"changed meanwhile": 1})
    assert (await bodies_of(store, letters[:1])) == [b'{"currency": "chf"}']


async def test_originals_can_be_restored(
    store: LetterStore, repairs: Repairs, letters: Sequence[DeadLetter]
) -> None:
    ids = [one.id for one in letters]
    await repairs.apply(ids, PATCH, BY)

    done = await repairs.undo([*ids, "nobody"], By("anna", "undo"))

    assert done.moved == 2
    assert done.skipped == {
        "have their original already": 5,
        "are not open": 1,
        "no longer there": 1,
    }
    assert await bodies_of(store, letters) == [one.message.body for one in letters]
    again = await repairs.undo(ids, By("anna", "undo"))
    assert again.moved == 0


async def test_an_undo_spares_what_was_edited_since_or_before(
    store: LetterStore, repairs: Repairs, clock: FakeClock
) -> None:
    made = [make_letter(number, body=b'{"currency":"eur"}') for number in range(3)]
    await store.keep(made)
    ids = [one.id for one in made]
    letters = Letters(store, clock)
    await letters.edit(ids[0], Changes(body=b'{"currency":"eur","by":"hand"}'), BY)
    (step,) = [one async for one in repairs.apply_in_steps(ids, PATCH, BY)]
    assert set(step.revisions) == set(ids[1:])  # the first one was edited before
    await letters.edit(ids[1], Changes(body=b"{}"), BY)

    undone = repairs.undo_in_steps(step.revisions, BY, revisions=step.revisions)
    (back,) = [one async for one in undone]

    assert (back.ids, back.so_far.skipped) == ((ids[2],), {"changed meanwhile": 1})


async def test_secrets_are_masked_in_samples(store: LetterStore, repairs: Repairs) -> None:
    letter = make_letter(body=b'{"currency": "eur", "password": "hunter2"}')
    await store.keep([letter])
    patch = parse_patch('{"password": "hunter3", "currency": "EUR"}')

    plan = await repairs.plan([letter.id], patch)

    assert "hunter" not in str(plan)
    assert plan.changes == 1


async def test_a_repair_needs_a_reason(repairs: Repairs) -> None:
    with pytest.raises(ConfigError, match="a repair needs a reason"):
        await repairs.apply(["x"], PATCH, By("anna", " "))
    with pytest.raises(ConfigError, match="needs a reason"):
        await repairs.undo(["x"], By("anna"))


async def test_the_number_of_samples_is_bounded(repairs: Repairs) -> None:
    with pytest.raises(ConfigError, match="0 to 50"):
        await repairs.plan([], PATCH, samples=51)
