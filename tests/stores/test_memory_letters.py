"""The memory office keeps what an office promises."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from damages import KEY, findings, furnish, sealed_anew, use
from deadletter.core.campaign import Outcome
from deadletter.stores.memory.campaigns import Campaigns
from deadletter.stores.memory.letter_table import LetterTable, StoredLetter
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_contract import LetterStoreContract
from deadletter.wiring.engines import opened


class TestMemoryLetters(LetterStoreContract):
    driver = MemoryLetters

    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryLetters:
        return MemoryLetters(clock=clock, dice=SeededDice())


def _swap_body(shelf: LetterTable, first: StoredLetter, second: StoredLetter) -> None:
    first.letter = replace(first.letter, message=second.letter.message)
    first.known = replace(first.known, digest=second.known.digest)


def _empty_history(shelf: LetterTable, first: StoredLetter, second: StoredLetter) -> None:
    first.known = replace(first.known, history="")


def _delete(shelf: LetterTable, first: StoredLetter, second: StoredLetter) -> None:
    del shelf.by_id[first.head.id], shelf.by_seq[first.seq]
    shelf.tally["kept"] -= 1


def _count_death(shelf: LetterTable, first: StoredLetter, second: StoredLetter) -> None:
    shelf.groups["f-1"] = replace(shelf.groups["f-1"], total=99)


def _cut_audit(shelf: LetterTable, first: StoredLetter, second: StoredLetter) -> None:
    del shelf.entries[0]


@pytest.mark.parametrize("keys", [(), (KEY,)])
@pytest.mark.parametrize("damage", [_swap_body, _empty_history, _delete, _count_death, _cut_audit])
async def test_damage_in_memory_is_noticed(
    damage: Callable[[LetterTable, StoredLetter, StoredLetter], None], keys: tuple[bytes, ...]
) -> None:
    async with opened("memory://") as engine:
        use(engine, *keys)
        letters = await furnish(engine)
        assert not await findings(engine)
        assert isinstance(engine.letters, MemoryLetters)
        shelf = engine.letters._shelf

        first, second = (shelf.by_id[letters[name]] for name in ("first", "second"))
        damage(shelf, first, second)

        assert await findings(engine)


async def test_an_outcome_changed_in_memory_is_noticed() -> None:
    async with opened("memory://") as engine:
        letters = await furnish(engine)
        assert isinstance(engine.letters, MemoryLetters)
        use(engine, KEY)
        assert "without the key" in await findings(engine)
        await sealed_anew(engine)
        assert not await findings(engine)

        campaigns: Campaigns = engine.letters._operations
        seq = engine.letters._shelf.by_id[letters["replayed"]].seq
        course = campaigns.courses["c-1"]
        (item,) = [one for one in course.items if one.seq == seq]
        item.outcome = Outcome.FAILED

        assert "the letters of campaign c-1" in await findings(engine)
