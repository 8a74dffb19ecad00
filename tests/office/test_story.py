from datetime import timedelta

from msgspec.structs import replace

from deadletter.core.attempts import Attempt, append
from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Lineage
from deadletter.core.origin import marked
from deadletter.intake.dialects import Origin
from deadletter.office.letters import Letters
from deadletter.office.view import Kind, reveal, tell
from deadletter.ports import LetterStore, ReplaySettled, ReplayTaken
from deadletter.testing.fakes import FakeClock
from office.making import BY, NOW, make_letter


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


async def test_a_drained_message_is_not_sent_after_its_death(store: LetterStore) -> None:
    letter = make_letter()
    found_at = letter.head.dead_at + timedelta(seconds=7)
    message = replace(letter.message, sent_at=found_at)
    origin = Origin("celery", "celery:dead")
    story = await tell(store, replace(letter, message=marked(message, origin)))

    assert Kind.SENT not in {moment.kind for moment in story.moments}


async def test_looking_behind_the_mask_is_part_of_the_story(store: LetterStore) -> None:
    letter = make_letter(state=State.CLOSED)
    await store.keep([letter])

    await reveal(store, letter, BY)

    last = (await tell(store, letter)).moments[-1]
    assert last.act is not None
    assert (last.act.actor, last.act.action) == ("anna", "reveal")


async def test_a_very_long_story_is_bounded(store: LetterStore, clock: FakeClock) -> None:
    letter = make_letter()
    await store.keep([letter])
    for number in range(520):
        await store.note([letter.id], f"note {number}", BY)

    story = await tell(store, letter)

    assert story.left_out
    assert len(story.moments) < 520


async def taken(store: LetterStore, letter: DeadLetter, campaign: str) -> ReplayTaken:
    """The letter, sent out by a campaign."""
    planned = Campaign(
        id=campaign, query="*", created_at=NOW, actor="anna", reason="fixed", to="canary"
    )
    await store.plan_replay(planned, [letter.id])
    (one,) = await store.take_replay(campaign, limit=1)
    await store.sent_replay(campaign, [letter.id])
    return one


def died(letter: DeadLetter, one: ReplayTaken, clock: FakeClock) -> DeadLetter:
    """What a worker makes of a copy it gives up."""
    attempt = Attempt(number=1, at=clock.now(), text="no", generation=one.generation)
    lineage = Lineage(letter_id=letter.id, generation=one.generation, campaign="c")
    return replace(
        letter,
        head=replace(letter.head, attempts=1, dead_at=clock.now()),
        message=replace(letter.message, lineage=lineage),
        history=append("", attempt),
    )


async def test_replays_are_told_between_the_deaths(store: LetterStore, clock: FakeClock) -> None:
    letter = make_letter()
    await store.keep([letter])
    clock.advance(60)
    first = await taken(store, letter, "c-1")
    clock.advance(60)
    await store.keep([died(letter, first, clock)])
    clock.advance(60)
    second = await taken(store, letter, "c-2")
    clock.advance(60)
    news = ReplaySettled(letter.id, second.generation, Outcome.CONFIRMED)
    await store.settle_replays([news])

    story = await tell(store, (await store.get([letter.id]))[0])

    assert [
        (moment.kind, moment.replay and moment.replay.generation, moment.text)
        for moment in story.moments[3:]
    ] == [
        (Kind.ATTEMPT, None, "the bank did not answer"),
        (Kind.DIED, None, ""),
        (Kind.REPLAY, 1, "canary"),
        (Kind.ATTEMPT, None, "no"),
        (Kind.DIED, None, "failed 2 of 2 attempts"),
        (Kind.OUTCOME, 1, "failed"),
        (Kind.REPLAY, 2, "canary"),
        (Kind.OUTCOME, 2, "confirmed"),
    ]
    assert not any(moment.given_up for moment in story.moments)


async def test_a_replay_nobody_waits_for_any_more_is_told_so(
    store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter()
    await store.keep([letter])
    await taken(store, letter, "c-1")
    await Letters(store, clock).reopen([letter.id], BY, unconfirmed=True)
    await taken(store, letter, "c-2")

    story = await tell(store, (await store.get([letter.id]))[0])

    replays = [moment for moment in story.moments if moment.replay is not None]
    assert [moment.given_up for moment in replays] == [True, False]


async def test_a_replay_that_skipped_a_letter_is_told_as_well(
    store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter(state=State.CLOSED)
    await store.keep([letter])
    planned = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(planned, [letter.id])
    await store.take_replay("c-1", limit=1)

    story = await tell(store, letter)

    (told,) = [moment for moment in story.moments if moment.replay is not None]
    assert (told.kind, told.text) == (Kind.OUTCOME, "skipped")
