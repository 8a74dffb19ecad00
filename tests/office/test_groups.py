from datetime import timedelta

import pytest

from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By, GroupStatus, State
from deadletter.office.groups import GroupPage, get_group, list_groups, say
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter, make_letters


async def test_the_largest_problem_comes_first(store: LetterStore) -> None:
    await store.keep(make_letters(9, died=timedelta(days=2)))
    await store.keep([make_letter(100, error_type="shop.NoFunds")])

    lines = (await list_groups(store)).groups

    assert [line.open for line in lines] == [9, 1]
    assert lines[0].share == 0.9


async def test_pages_of_several_mailboxes_are_one_list(store: LetterStore) -> None:
    for n in range(12):
        name, size = ("orders", "mails", "bills")[n % 3], 1 + n % 2
        letters = [make_letter(10 * n + k, source=name, fingerprint=f"1-{n}") for k in range(size)]
        await store.keep(letters)

    walked, after = [], None
    while len(walked) < 12:
        page = await list_groups(store, sources=("orders", "mails"), limit=3, after=after)
        walked += page.groups
        after = page.after
        if after is None:
            break

    assert len({line.fingerprint for line in walked}) == len(walked) == 8
    assert {line.source for line in walked} == {"orders", "mails"}
    assert [line.open for line in walked] == [2] * 4 + [1] * 4


async def test_groups_without_open_letters_are_shown_if_asked_for(store: LetterStore) -> None:
    await store.keep([make_letter(state=State.CLOSED)])

    assert await list_groups(store) == GroupPage(())
    (line,) = (await list_groups(store, everything=True)).groups
    assert (line.open, line.total, line.share) == (0, 1, 0.0)


async def test_one_mailbox_alone_can_be_asked_for(store: LetterStore) -> None:
    await store.keep([make_letter(1), make_letter(2, source="payments")])

    (line,) = (await list_groups(store, source="payments")).groups

    assert (line.source, line.share) == ("payments", 1.0)


async def test_snoozed_and_muted_groups_are_listed_only_on_request(
    store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([make_letter(1), make_letter(2, source="payments")])
    hidden, _ = (await list_groups(store)).groups
    await say(store, clock, hidden.fingerprint, GroupStatus.MUTED, BY)

    (listed,) = (await list_groups(store)).groups
    (muted,) = (await list_groups(store, status=GroupStatus.MUTED)).groups

    assert listed.fingerprint != hidden.fingerprint == muted.fingerprint
    assert len((await list_groups(store, everything=True)).groups) == 2


async def test_one_status_is_listed_whether_or_not_something_is_open(
    store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([make_letter(state=State.CLOSED)])
    (line,) = (await list_groups(store, everything=True)).groups
    await say(store, clock, line.fingerprint, GroupStatus.RESOLVED, BY, version="1.8")

    (resolved,) = (await list_groups(store, status=GroupStatus.RESOLVED)).groups

    assert (resolved.version, resolved.note) == ("1.8", BY.reason)
    assert resolved.since == clock.now()


async def test_owner_and_note_stay_until_others_are_given(
    store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter()
    await store.keep([letter])
    name, ongoing = letter.head.fingerprint, GroupStatus.ONGOING

    await say(store, clock, name, ongoing, By("anna", "the bank knows"), owner="bo")
    kept = await say(store, clock, name, GroupStatus.RESOLVED, By("anna"))
    changed = await say(store, clock, name, ongoing, By("anna", "no"), owner="")

    assert (kept.standing.owner, kept.standing.note) == ("bo", "the bank knows")
    assert (changed.standing.owner, changed.standing.note) == (None, "no")


async def test_a_group_is_found_by_the_beginning_of_its_name(store: LetterStore) -> None:
    prints = ("1-aa", "1-ab", "1-abc")
    await store.keep([make_letter(n, fingerprint=f) for n, f in enumerate(prints)])

    assert (await get_group(store, "1-aa")).fingerprint == "1-aa"
    assert (await get_group(store, "group:1-abc*")).fingerprint == "1-abc"
    assert (await get_group(store, "1-ab")).fingerprint == "1-ab"
    with pytest.raises(Conflict, match="several groups begin with 1-a"):
        await get_group(store, "1-a*")
    for name in ("2-", "*", " "):
        with pytest.raises(NotFound):
            await get_group(store, name)


async def test_a_group_is_found_by_its_name_among_longer_ones(store: LetterStore) -> None:
    await store.keep([make_letter(n, fingerprint=f"2-1{'x' * n}") for n in range(9)])

    assert (await get_group(store, "2-1")).fingerprint == "2-1"
