"""Letters of messages that were handled after all, edited meanwhile or not."""

import pytest
from msgspec.structs import replace

from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Delivery
from deadletter.ports import LetterStore
from deadletter.runtime.settlement import close_stale_letters
from deadletter.stores.memory import open_engine
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_bench import ANNA, a_letter


@pytest.fixture
async def store() -> LetterStore:
    engine = await open_engine("memory://", clock=FakeClock(), dice=SeededDice(1))
    assert engine.letters is not None
    return engine.letters


async def handled(store: LetterStore, letter: DeadLetter, body: bytes) -> State:
    """Have a message with this body handled; where its letter is then."""
    message = replace(letter.message, body=body)
    await close_stale_letters(store, [Delivery(message=message, mailbox="orders", attempt=2)])
    (found,) = await store.get([letter.id])
    return found.head.state


async def test_the_letter_of_a_message_that_was_handled_is_closed(store: LetterStore) -> None:
    letter = a_letter(b"one")
    await store.keep([letter])

    assert await handled(store, letter, b"one") is State.CLOSED


async def test_another_body_under_the_same_id_is_another_message(store: LetterStore) -> None:
    letter = a_letter(b"one")
    await store.keep([letter])

    assert await handled(store, letter, b"two") is State.PENDING


@pytest.mark.parametrize("body", [b"one", b"mended"])
async def test_an_edited_letter_is_closed_by_what_died_and_by_what_it_became(
    store: LetterStore, body: bytes
) -> None:
    letter = a_letter(b"one")
    await store.keep([letter])
    mended = replace(letter.message, body=b"mended")
    await store.edit(letter.id, mended, revision=letter.head.revision, by=ANNA)

    assert await handled(store, letter, body) is State.CLOSED
