from deadletter.core.letter import State
from deadletter.office.letters import Letters
from deadletter.office.story import Kind, reveal, tell
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter


async def test_a_story_is_told_in_order(store: LetterStore, clock: FakeClock) -> None:
    letter = make_letter()
    await store.keep([letter])
    clock.advance(60)
    await Letters(store, clock).note([letter.id], "ask Bo", BY)
    clock.advance(60)
    await Letters(store, clock).review([letter.id], BY)

    story = await tell(store, letter)

    assert [moment.kind for moment in story.moments] == [
        Kind.SENT,
        Kind.RECEIVED,
        Kind.ATTEMPT,
        Kind.ATTEMPT,
        Kind.DIED,
        Kind.ACT,
        Kind.ACT,
    ]
    assert story.moments[5].text == "ask Bo"
    assert not story.left_out


async def test_looking_behind_the_mask_is_part_of_the_story(
    store: LetterStore,
) -> None:
    letter = make_letter(state=State.CLOSED)
    await store.keep([letter])

    await reveal(store, letter, BY)

    last = (await tell(store, letter)).moments[-1]
    assert last.act is not None
    assert (last.act.actor, last.act.action) == ("anna", "reveal")


async def test_a_very_long_story_is_bounded(
    store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter()
    await store.keep([letter])
    for number in range(520):
        await store.note([letter.id], f"note {number}", BY)

    story = await tell(store, letter)

    assert story.left_out
    assert len(story.moments) < 520
