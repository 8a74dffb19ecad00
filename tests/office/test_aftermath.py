"""Why letters of a replay failed again: the same error, or another one."""

from datetime import timedelta

from msgspec import structs

from deadletter.core.attempts import Attempt, append
from deadletter.core.campaign import Campaign
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Lineage
from deadletter.office.aftermath import LOOKED_AT, has_same_error, load_aftermath
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore, QueueOptions
from office.making import BY, NOW, make_letter, make_letters
from office.sending import received


async def replayed(
    store: LetterStore, engine: Engine, replay: Replay, letters: list[DeadLetter]
) -> Campaign:
    await engine.broker.create(QueueOptions(name="orders"))
    await store.keep(letters)
    campaign = await replay.start("*", BY)
    await replay.run(campaign.id)
    await received(engine)
    return campaign


async def died_again(
    store: LetterStore, campaign: Campaign, letter: DeadLetter, error: str, group: str
) -> None:
    """Keep a letter that failed again, as a worker does."""
    at = NOW + timedelta(minutes=1)
    attempt = Attempt(
        number=1, at=at, code="TIMEOUT", error_type=error, text="again", stack="at 7", generation=1
    )
    head = structs.replace(
        letter.head, error_type=error, error_text="again", fingerprint=group, dead_at=at
    )
    lineage = Lineage(letter_id=letter.id, generation=1, campaign=campaign.id)
    message = structs.replace(letter.message, lineage=lineage)
    await store.keep(
        [structs.replace(letter, head=head, message=message, history=append("", attempt))]
    )


def test_errors_are_compared_without_the_data_in_them() -> None:
    def attempt(text: str, generation: int, error: str = "KeyError") -> Attempt:
        return Attempt(number=1, at=NOW, error_type=error, text=text, generation=generation)

    same = [attempt("order 17 is late", 0), attempt("order 18 is late", 1)]
    other = [attempt("order 17 is late", 0), attempt("order 17 is late", 1, "IndexError")]

    assert has_same_error(same, 1)
    assert not has_same_error(other, 1)
    assert not has_same_error(same[1:], 1)  # nobody knows what it was before


async def test_failed_letters_are_told_by_cause(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    letters = [make_letter(n, error_text="again", trouble="unknown") for n in range(1, 6)]
    campaign = await replayed(store, engine, replay, letters)
    for letter in letters[:2]:
        await died_again(store, campaign, letter, "builtins.TimeoutError", "1-" + "a" * 16)
    await died_again(store, campaign, letters[2], "builtins.KeyError", "1-" + "b" * 16)

    found = await load_aftermath(store, await replay.status(campaign.id))

    assert (found.failed, found.looked_at, found.same, found.other) == (3, 3, 2, 1)
    assert [(one.error_type, one.letters, one.is_same) for one in found.causes] == [
        ("builtins.TimeoutError", 2, True),
        ("builtins.KeyError", 1, False),
    ]
    assert found.causes[1].samples == (letters[2].id,)
    assert found.causes[1].stack == "at 7"


async def test_nothing_is_read_if_nothing_failed(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    campaign = await replayed(store, engine, replay, make_letters(2))

    found = await load_aftermath(store, await replay.status(campaign.id))

    assert (found.failed, found.causes) == (0, ())


async def test_letters_of_other_mailboxes_are_not_told_of(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    letters = make_letters(1)
    campaign = await replayed(store, engine, replay, letters)
    await died_again(store, campaign, letters[0], "KeyError", "1-" + "b" * 16)

    found = await load_aftermath(store, await replay.status(campaign.id), sources=["mails"])

    assert (found.failed, found.looked_at, found.causes) == (1, 0, ())


async def test_a_bounded_number_of_failed_letters_is_looked_at(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    letters = make_letters(LOOKED_AT + 5)
    campaign = await replayed(store, engine, replay, letters)
    for letter in letters:
        await died_again(store, campaign, letter, "KeyError", "1-" + "b" * 16)

    found = await load_aftermath(store, await replay.status(campaign.id))

    assert (found.failed, found.looked_at) == (LOOKED_AT + 5, LOOKED_AT)
