from datetime import timedelta

from deadletter.core.letter import State
from deadletter.office.groups import list_groups
from deadletter.ports import LetterStore
from office.making import make_letter, make_letters


async def test_the_largest_problem_comes_first(store: LetterStore) -> None:
    await store.keep(make_letters(9, died=timedelta(days=2)))
    await store.keep([make_letter(100, error_type="shop.NoFunds")])

    lines = await list_groups(store)

    assert [line.open for line in lines] == [9, 1]
    assert lines[0].share == 0.9


async def test_groups_without_open_letters_are_shown_if_asked_for(
    store: LetterStore,
) -> None:
    await store.keep([make_letter(state=State.CLOSED)])

    assert await list_groups(store) == []
    (line,) = await list_groups(store, only_open=False)
    assert (line.open, line.total, line.share) == (0, 1, 0.0)


async def test_one_mailbox_alone_can_be_asked_for(store: LetterStore) -> None:
    await store.keep([make_letter(1), make_letter(2, source="payments")])

    (line,) = await list_groups(store, source="payments")

    assert (line.source, line.share) == ("payments", 1.0)
