"""Letters of older fingerprints find their groups, batch by batch."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core import grouping as regrouping
from deadletter.core.errors import NotFound
from deadletter.core.failure.fingerprint import of_head
from deadletter.core.letter import DeadLetter, GroupStatus, Standing
from deadletter.office.groups import get_group
from deadletter.office.regrouping import regroup_all, regroup_some
from deadletter.ports import LetterStore
from office.making import BY, NOW, make_letter

OLD = "1-63085a168bb799e5"
OTHER = "1-0000000000000002"


@pytest.fixture(autouse=True)
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters are kept as an older worker keeps them."""
    monkeypatch.setattr(regrouping, "current", lambda letter: letter)


def of(text: str, number: int, name: str = OLD, **more: object) -> DeadLetter:
    return make_letter(number, error_text=text, fingerprint=name, **more)


async def names(store: LetterStore) -> dict[str, int]:
    found = await store.groups(only_open=False)
    return {one.fingerprint: sum(one.counts.values()) for one in found}


async def test_a_group_of_two_causes_becomes_two(store: LetterStore) -> None:
    letters = [of(f"HTTP {503 + n % 2} for order {n}", n) for n in range(10)]
    await store.keep(letters)
    muted = Standing(status=GroupStatus.MUTED, since=NOW, owner="bo", note="known")
    await store.set_group(OLD, muted, BY)

    moved = await regroup_all(store, BY, batch=3)

    assert moved == 10
    wanted = {of_head(one.head, one.frame) for one in letters}
    assert len(wanted) == 2
    assert await names(store) == dict.fromkeys(wanted, 5)
    groups = await store.groups(only_open=False)
    assert {one.standing for one in groups} == {muted}
    assert await store.verify() == []


async def test_groups_of_one_cause_become_one(store: LetterStore) -> None:
    await store.keep([of("lock 8e401fa627bb is held", 1)])
    await store.keep([of("lock da7069765590 is held", 2, OTHER)])

    await regroup_all(store, BY)

    (group,) = await store.groups(only_open=False)
    assert (group.open, group.total) == (2, 2)
    assert group.fingerprint.startswith("2-")


async def test_a_regrouping_that_was_stopped_goes_on(store: LetterStore) -> None:
    await store.keep([of(f"order {n} is unknown", n) for n in range(10)])

    assert await regroup_some(store, BY, batch=4) == 4
    assert sorted((await names(store)).values()) == [4, 6]
    assert await store.verify() == []
    await store.keep([of("order 11 is unknown", 11)])  # an older worker still runs

    assert await regroup_all(store, BY, batch=4) == 7
    assert list((await names(store)).values()) == [11]
    assert await regroup_some(store, BY) == 0


async def test_the_first_death_with_a_line_inherits_what_was_said(store: LetterStore) -> None:
    old = of("order 1 is unknown", 1)
    await store.keep([old])
    await store.set_group(OLD, Standing(status=GroupStatus.MUTED, since=NOW), BY)
    await regroup_all(store, BY)
    new = of("order 2 is unknown", 2, died=timedelta(minutes=5))
    frame = f"{new.frame}#3f09ab"
    name = of_head(new.head, frame)
    await store.keep([with_frame(new, frame, name)])

    await regroup_all(store, BY)

    (group,) = await store.groups(only_open=False)
    assert (group.fingerprint, group.open) == (name, 2)
    assert group.standing.status is GroupStatus.MUTED


async def test_an_old_name_leads_to_the_group_of_all_its_letters(store: LetterStore) -> None:
    await store.keep([of("order 1 is unknown", 1)])
    await regroup_all(store, BY)

    (name,) = await names(store)
    assert (await get_group(store, OLD)).fingerprint == name
    assert (await get_group(store, OLD, sources=["orders"])).fingerprint == name
    with pytest.raises(NotFound, match="there is no group"):
        await get_group(store, OLD, sources=["mails"])


async def test_an_old_name_says_what_became_of_its_letters(store: LetterStore) -> None:
    await store.keep([of("order 1 is unknown", 1), of("no such customer", 2)])
    await regroup_all(store, BY)

    with pytest.raises(NotFound, match=f"group {OLD} is gone: 1 letter to 2-"):
        await get_group(store, OLD)


async def test_groups_named_after_a_frame_of_ours_do_without_it(store: LetterStore) -> None:
    before, after = "2-63085a168bb799e5", of_head(of("not JSON", 1).head, "")
    frame = "deadletter.runtime.decoding:_fit"
    await store.keep([with_frame(of("not JSON", n), frame, before) for n in range(5)])
    new = of("not JSON", 9, died=timedelta(minutes=5))
    await store.keep([with_frame(new, "", after)])

    assert await regroup_all(store, BY, batch=2) == 5

    assert await names(store) == {after: 6}
    assert await store.verify() == []
    await store.keep([with_frame(of("not JSON", 10), "deadletter.new_place:_fit", after)])
    assert await regroup_some(store, BY) == 0


def with_frame(letter: DeadLetter, frame: str, name: str) -> DeadLetter:
    return replace(letter, frame=frame, head=replace(letter.head, fingerprint=name))
