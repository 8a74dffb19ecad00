from datetime import timedelta

import pytest

from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.errors import ConfigError, Conflict, NotFound, QueryError
from deadletter.core.letter import State
from deadletter.office.letters import Letters
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, NOW, make_letter, make_letters


@pytest.fixture
def letters(store: LetterStore, clock: FakeClock) -> Letters:
    return Letters(store, clock)


async def states(store: LetterStore, *ids: str) -> list[State]:
    return [letter.head.state for letter in await store.get(ids)]


async def test_a_search_finds_the_newest_first(letters: Letters, store: LetterStore) -> None:
    await store.keep([*make_letters(5), make_letter(9, source="payments")])

    page = await letters.search("source:orders", limit=3)

    assert [head.message_id for head in page.heads] == ["m-1", "m-2", "m-3"]


async def test_a_search_goes_on_where_it_stopped(letters: Letters, store: LetterStore) -> None:
    await store.keep(make_letters(5))
    first = await letters.search(limit=3)

    second = await letters.search(limit=3, after=first.after)

    assert [head.message_id for head in second.heads] == ["m-4", "m-5"]


async def test_a_bad_search_points_at_the_token(letters: Letters) -> None:
    with pytest.raises(QueryError) as caught:
        await letters.search("is:pending colour:red")

    assert caught.value.at == len("is:pending ")


async def test_relative_times_are_those_of_the_clock(letters: Letters, store: LetterStore) -> None:
    await store.keep([make_letter(1), make_letter(2, died=timedelta(days=3))])

    page = await letters.search("age:>1d")

    assert [head.message_id for head in page.heads] == ["m-2"]


async def test_everything_found_is_selected_page_by_page(
    letters: Letters, store: LetterStore
) -> None:
    await store.keep(make_letters(1_203))

    ids = await letters.freeze("is:pending")

    assert len(set(ids)) == 1_203


async def test_a_selection_has_a_limit(letters: Letters, store: LetterStore) -> None:
    await store.keep(make_letters(30))

    assert len(await letters.freeze("*", limit=7)) == 7


async def test_a_letter_is_found_by_the_beginning_of_its_id(
    letters: Letters, store: LetterStore
) -> None:
    letter = make_letter()
    await store.keep([letter])

    assert (await letters.get(letter.id)).id == letter.id
    assert (await letters.get(letter.id[:6].upper())).id == letter.id


@pytest.mark.parametrize("text", ["aaaaaa", "a" * 24, "abc", "a*aaaaaa", "", "*"])
async def test_no_such_letter_is_a_sentence(
    letters: Letters, store: LetterStore, text: str
) -> None:
    await store.keep(make_letters(3))

    with pytest.raises(NotFound, match=r"letter|short"):
        await letters.get(text)


async def test_a_beginning_that_fits_several_names_them(
    letters: Letters, store: LetterStore
) -> None:
    pair = [make_letter(29_474), make_letter(32_411)]  # ids that begin alike
    assert pair[0].id[:6] == pair[1].id[:6]
    await store.keep(pair)

    with pytest.raises(Conflict, match=pair[0].id):
        await letters.get(pair[0].id[:6])


async def test_review_moves_the_pending_and_says_why_not_the_others(
    letters: Letters, store: LetterStore
) -> None:
    pending, closed = make_letter(1), make_letter(2, state=State.CLOSED)
    await store.keep([pending, closed])

    moved = await letters.review([pending.id, closed.id, "z" * 24], BY)

    assert (moved.asked, moved.moved) == (3, 1)
    assert moved.skipped == {"is closed": 1, "no longer there": 1}
    assert await states(store, pending.id, closed.id) == [State.REVIEWED, State.CLOSED]


async def test_many_letters_are_moved_in_batches(letters: Letters, store: LetterStore) -> None:
    await store.keep(make_letters(1_203))

    moved = await letters.close(await letters.freeze("*"), BY)

    assert moved.moved == 1_203
    assert (await letters.counts())["orders"] == {State.CLOSED: 1_203}


async def test_discarded_letters_can_be_restored(letters: Letters, store: LetterStore) -> None:
    letter = make_letter()
    await store.keep([letter])

    await letters.discard([letter.id], BY)
    assert await states(store, letter.id) == [State.DISCARDED]
    await letters.restore([letter.id], BY)

    assert await states(store, letter.id) == [State.PENDING]


async def test_a_letter_on_its_way_is_reopened_only_if_asked_for(
    letters: Letters, store: LetterStore
) -> None:
    letter = make_letter(state=State.REPLAYING)
    await store.keep([letter])

    assert (await letters.reopen([letter.id], BY)).moved == 0
    assert (await letters.reopen([letter.id], BY, unconfirmed=True)).moved == 1


@pytest.mark.parametrize("verb", ["close", "discard", "reopen"])
async def test_a_replay_ends_when_its_last_letter_is_put_away(
    letters: Letters, store: LetterStore, verb: str
) -> None:
    stuck, pending = make_letters(2)
    await store.keep([stuck, pending])
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(campaign, [stuck.id])
    await store.take_replay("c-1", limit=1)
    await store.sent_replay("c-1", [stuck.id])

    assert (await getattr(letters, verb)([stuck.id], BY)).skipped == {"is replaying": 1}
    await getattr(letters, verb)([stuck.id, pending.id], BY, unconfirmed=True)

    (campaign,) = await store.campaigns()
    assert campaign.state is CampaignState.DONE
    assert campaign.counts == {Outcome.UNCONFIRMED: 1}


async def test_every_move_is_in_the_audit_with_who_and_why(
    letters: Letters, store: LetterStore
) -> None:
    letter = make_letter()
    await store.keep([letter])

    await letters.review([letter.id], BY)

    entry = (await store.audit(target=letter.id))[-1]
    assert (entry.actor, entry.reason) == ("anna", "because")


async def test_a_note_stands_in_the_audit(letters: Letters, store: LetterStore) -> None:
    letter = make_letter()
    await store.keep([letter])

    moved = await letters.note([letter.id], "  ask Bo  ", BY)

    assert moved.moved == 1
    assert (await store.audit(target=letter.id))[-1].detail == "ask Bo"


@pytest.mark.parametrize("text", ["", "  ", "x" * 5_000])
async def test_a_note_has_a_text_of_bounded_length(letters: Letters, text: str) -> None:
    with pytest.raises(ConfigError):
        await letters.note(["a" * 24], text, BY)


async def test_purging_needs_a_reason(letters: Letters, store: LetterStore) -> None:
    letter = make_letter()
    await store.keep([letter])

    with pytest.raises(ConfigError, match="reason"):
        await letters.purge([letter.id], type(BY)("anna"))

    assert len(await store.get([letter.id])) == 1


async def test_purging_deletes_for_good_but_not_what_is_on_its_way(
    letters: Letters, store: LetterStore
) -> None:
    here, out = make_letter(1), make_letter(2, state=State.REPLAYING)
    await store.keep([here, out])

    moved = await letters.purge([here.id, out.id], BY)

    assert moved.moved == 1
    assert moved.skipped == {"is replaying": 1}
    assert [one.id for one in await store.get([here.id, out.id])] == [out.id]
