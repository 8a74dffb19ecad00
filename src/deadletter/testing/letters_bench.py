"""Base of the letter store contracts: sample letters, and helpers for common steps."""

from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.attempts import Attempt, append
from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.ids import letter_id
from deadletter.core.letter import By, DeadLetter, LetterHead, State
from deadletter.core.message import Lineage, Message
from deadletter.ports import LetterStore, Move, ReplaySettled, ReplayTaken

from .fakes import START, FakeClock

ANNA = By("anna", "looked into it")

_numbers = count(1)


def a_letter(body: bytes = b"{}", **fields: Any) -> DeadLetter:
    """
    Return a letter as a worker makes it: one attempt, dead when it failed.

    Fields of the head and of the message can be given, `at` says when it died.
    """
    at = fields.pop("at", START)
    in_message = {name: fields.pop(name) for name in Message.__struct_fields__ if name in fields}
    # Letters that were sent at the same time go in the order of their ids.
    message_id = fields.pop("message_id", None) or f"m-{next(_numbers):06}"
    given: dict[str, Any] = {"id": message_id, "body": body, "sent_at": START}
    message = Message(**given | in_message)
    head = LetterHead(
        **{
            "source": "orders",
            "first_failed_at": at,
            "dead_at": at,
            "error_type": "shop.errors.NoFunds",
            "error_text": "not enough money",
            "fingerprint": "f-1",
            "key": message.key,
            "business_key": message.idempotency_key,
            "size": len(message.body),
        }
        | fields
        | {"id": "", "message_id": message.id}
    )
    identity = letter_id(head.source, head.partition, head.message_id)
    return DeadLetter(
        head=replace(head, id=identity),
        message=message,
        history=_line(head.attempts, at, message.generation),
        frame="shop.orders:charge",
    )


def tried_again(letter: DeadLetter, *, later: float = 60.0) -> DeadLetter:
    """Return the same message, given up again after one more attempt."""
    at = letter.head.dead_at + timedelta(seconds=later)
    attempts = letter.head.attempts + 1
    head = replace(letter.head, attempts=attempts, dead_at=at)
    line = _line(attempts, at, letter.message.generation)
    return replace(letter, head=head, history=f"{letter.history}\n{line}")


def copy_that_died(taken: ReplayTaken, *, later: float = 60.0) -> DeadLetter:
    """Return the letter a worker makes of a replayed copy that it gives up."""
    message, at = taken.message, START + timedelta(seconds=later)
    lineage = Lineage(letter_id=taken.letter_id, generation=taken.generation, campaign="c-1")
    letter = a_letter(message.body, message_id=message.id, source=taken.source, at=at)
    return replace(
        letter,
        head=replace(letter.head, id=taken.letter_id),
        message=replace(message, lineage=lineage),
        history=_line(1, at, taken.generation),
    )


def a_campaign(id_: str = "c-1", **fields: Any) -> Campaign:
    """Return a campaign that somebody starts."""
    given: dict[str, Any] = {"query": "is:open", "created_at": START, "actor": "anna"}
    return Campaign(id=id_, **given | fields)


def settled(taken: ReplayTaken, outcome: Outcome) -> ReplaySettled:
    """Return the settlement of a copy with an outcome."""
    return ReplaySettled(taken.letter_id, taken.generation, outcome)


def _line(number: int, at: datetime, generation: int) -> str:
    attempt = Attempt(number=number, at=at, text="no", generation=generation)
    return append("", attempt)


class OfficeBench:
    """
    Common ground of the contracts.

    A backend's test class gives a fixture `store`, an empty office on the `clock`
    it is handed; and names its class as `driver`, which makes mypy hold it to the
    port.
    """

    driver: type[LetterStore]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    async def kept(self, store: LetterStore, *letters: DeadLetter) -> list[str]:
        """File these letters, or a sample one; return their ids."""
        return [one.id for one in await store.keep(letters or [a_letter()])]

    async def one(self, store: LetterStore, id_: str) -> DeadLetter:
        """Return the letter there must be."""
        (letter,) = await store.get([id_])
        return letter

    async def state(self, store: LetterStore, id_: str) -> State:
        """Return the state of a letter."""
        return (await self.one(store, id_)).head.state

    async def moved(self, store: LetterStore, id_: str, *states: State) -> None:
        """Move a letter through these states, which must work."""
        for new in states:
            old = frozenset({await self.state(store, id_)})
            assert await store.move(Move(ids=(id_,), old=old, new=new), ANNA) == [id_]

    async def all_heads(
        self, store: LetterStore, *, limit: int = 50, **how: Any
    ) -> list[LetterHead]:
        """Return everything a search finds, page by page."""
        page = await store.find(limit=limit, **how)
        heads = list(page.heads)
        while (after := page.after) is not None:
            page = await store.find(limit=limit, after=after, **how)
            assert page.after != after, "pages that lead nowhere"
            heads += page.heads
        return heads

    async def taken(
        self, store: LetterStore, *ids: str, campaign: Campaign | None = None
    ) -> list[ReplayTaken]:
        """Plan a campaign over these letters, and take all of them."""
        campaign = campaign or a_campaign()
        await store.plan_replay(campaign, ids)
        return list(await store.take_replay(campaign.id, limit=100))

    async def is_sound(self, store: LetterStore) -> bool:
        """Return whether everything adds up."""
        return not await store.verify()
