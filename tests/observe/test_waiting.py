"""The oldest letter nobody has looked at is found without reading them all."""

from datetime import timedelta

import pytest

from deadletter.core.letter import State
from deadletter.observe.waiting import oldest_pending
from deadletter.ports import LetterStore
from office.making import NOW, make_letter


async def test_of_nothing_there_is_none(store: LetterStore) -> None:
    await store.keep([make_letter(1, source="mails")])

    assert await oldest_pending(store, "orders", NOW) is None


async def test_of_a_few_it_is_exact_and_those_looked_at_do_not_count(store: LetterStore) -> None:
    await store.keep(
        [
            make_letter(1, died=timedelta(days=9), state=State.REVIEWED),
            make_letter(2, died=timedelta(days=3)),
            make_letter(3, died=timedelta(minutes=1)),
            make_letter(4, source="mails", died=timedelta(days=8)),
        ]
    )

    assert await oldest_pending(store, "orders", NOW) == NOW - timedelta(days=3)


@pytest.mark.parametrize(
    ("many", "oldest"),
    [
        (500, timedelta(days=40)),  # one that is much older than all others
        (500, timedelta(hours=3)),
        (1500, timedelta(days=400)),
    ],
)
async def test_of_many_it_is_close_to_the_truth(
    store: LetterStore, many: int, oldest: timedelta
) -> None:
    letters = [make_letter(n, died=timedelta(seconds=5 + 7 * n)) for n in range(many)] + [
        make_letter(many + 1, died=oldest)
    ]
    await store.keep(letters)

    found = await oldest_pending(store, "orders", NOW)

    assert found is not None
    age = (NOW - found).total_seconds()
    truth = max(oldest.total_seconds(), 5 + 7 * (many - 1))
    assert truth / 1.06 <= age <= truth


async def test_of_many_that_died_together_long_ago_too(store: LetterStore) -> None:
    # The first look further back finds nothing: the truth lies in between.
    await store.keep([make_letter(n, died=timedelta(seconds=10_000 + n)) for n in range(1_500)])

    found = await oldest_pending(store, "orders", NOW)

    assert found is not None
    age = (NOW - found).total_seconds()
    assert 11_499 / 1.06 <= age <= 11_499


async def test_names_are_taken_literally(store: LetterStore) -> None:
    await store.keep([make_letter(1, source="orders")])

    assert await oldest_pending(store, "ord*", NOW) is None
