"""Groups merged and split by people; letters to come follow, and it can be undone."""

import pytest
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.failure.fingerprint import of_head
from deadletter.core.letter import DeadLetter
from deadletter.office.groups import get_group, list_rules, merge_groups, split_group, undo_grouping
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter


def of(text: str, number: int, **more: object) -> DeadLetter:
    letter = make_letter(number, error_text=text, **more)
    name = of_head(letter.head, letter.frame)
    return replace(letter, head=replace(letter.head, fingerprint=name))


async def names(store: LetterStore) -> dict[str, int]:
    found = await store.groups(only_open=False)
    return {one.fingerprint: sum(one.counts.values()) for one in found}


async def two_groups(store: LetterStore) -> tuple[str, str]:
    one, two = of("the bank is down", 1), of("bank away", 2)
    await store.keep([one, two])
    return one.head.fingerprint, two.head.fingerprint


async def test_merged_groups_stay_one_until_that_is_undone(
    store: LetterStore, clock: FakeClock
) -> None:
    first, second = await two_groups(store)

    done = await merge_groups(store, clock, first, [second], BY)
    await store.keep([of("bank away", 3)])

    assert (done.group, done.moved) == (first, 1)
    assert await names(store) == {first: 3}
    assert (await get_group(store, second)).fingerprint == first
    (rule,) = await list_rules(store)
    assert (rule.group, rule.target, rule.query) == (second, first, "")

    back = await undo_grouping(store, second, BY)
    await store.keep([of("bank away", 4)])

    assert (back.group, back.moved) == (second, 2)
    assert await names(store) == {first: 1, second: 3}
    assert await list_rules(store) == []
    actions = [one.action for one in await store.audit(target=second)]
    assert actions == ["regroup-rule", "regroup", "regroup-rule"]
    assert await store.verify() == []


async def test_a_group_is_split_by_a_search(store: LetterStore, clock: FakeClock) -> None:
    await store.keep([of("the bank is down", n, version=f"{n}.0") for n in range(4)])
    (name,) = await names(store)

    done = await split_group(store, clock, name, "version:2.0", BY)
    await store.keep([of("the bank is down", 9, version="2.0")])

    assert done.moved == 1
    assert await names(store) == {name: 3, done.group: 2}
    again = await split_group(store, clock, name, "version:2.0", BY)
    assert (again.group, again.moved) == (done.group, 0)

    back = await undo_grouping(store, done.group, BY)

    assert (back.group, back.moved) == (name, 2)
    assert await names(store) == {name: 5}


async def test_groups_of_two_mailboxes_are_not_merged(store: LetterStore, clock: FakeClock) -> None:
    one, two = of("no", 1), of("no", 2, source="mails")
    await store.keep([one, two])

    with pytest.raises(Conflict, match="only groups of one mailbox"):
        await merge_groups(store, clock, one.head.fingerprint, [two.head.fingerprint], BY)


async def test_groups_are_not_merged_in_a_circle(store: LetterStore, clock: FakeClock) -> None:
    first, second = await two_groups(store)
    await merge_groups(store, clock, first, [second], BY)

    with pytest.raises(ConfigError, match="named twice"):
        await merge_groups(store, clock, second, [first], BY)


@pytest.mark.parametrize("query", ["is:pending", "age:>1d", "version:2 is:closed", ""])
async def test_splitting_by_mutable_fields_is_rejected(
    store: LetterStore, clock: FakeClock, query: str
) -> None:
    first, _ = await two_groups(store)

    with pytest.raises(ConfigError):
        await split_group(store, clock, first, query, BY)


@pytest.mark.parametrize("query", ["n", "version:2.0 n", "!n", '"did not"', "*"])
async def test_free_text_splits_no_group(store: LetterStore, clock: FakeClock, query: str) -> None:
    first, _ = await two_groups(store)

    with pytest.raises(ConfigError, match="text:"):
        await split_group(store, clock, first, query, BY)


async def test_groups_of_others_are_out_of_reach(store: LetterStore, clock: FakeClock) -> None:
    first, second = await two_groups(store)

    with pytest.raises(NotFound):
        await merge_groups(store, clock, first, [second], BY, sources=("mails",))
    await merge_groups(store, clock, first, [second], BY)
    with pytest.raises(NotFound):
        await undo_grouping(store, second, BY, sources=("mails",))
    assert await list_rules(store, sources=("mails",)) == []


async def test_nothing_to_undo_is_said(store: LetterStore) -> None:
    with pytest.raises(NotFound, match="dlq groups rules"):
        await undo_grouping(store, "2-12", BY)
