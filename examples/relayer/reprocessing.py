"""
Reprocessing of transactions with `retryOnFailure`, if it is switched on.

Each time is a replay of the office, with its letter, audit and outcome, like those
that people start. Past the limit the letter is quarantined: for people only.
"""

from datetime import timedelta
from typing import Final

from deadletter import App, DeadLetter, RetryLater
from deadletter.core.campaign import Outcome
from deadletter.core.letter import By, LetterHead, State
from deadletter.office.replay import Replay
from deadletter.ports import Clock, Dice

from .settings import Settings
from .table import Table
from .values import Status, Transaction

BY: Final = By("dlq-consumer", "retryOnFailure")


class Reprocessing:
    """Sends letters back to the queue they died in."""

    def __init__(
        self, app: App, settings: Settings, table: Table, clock: Clock, dice: Dice
    ) -> None:
        self._app = app
        self._is_on = settings.reprocessing
        self._limit = settings.replay_limit
        self._delay = timedelta(seconds=settings.replay_delay)
        self._table = table
        self._clock = clock
        self._dice = dice

    async def send_back(self, letter: DeadLetter, transaction: Transaction) -> bool:
        """
        Send a letter back; return False if reprocessing is off, or its limit is reached.

        After a crash on the way the message is received again: the replay that was begun is
        ended, and no second one is begun.
        """
        if not self._is_on:
            return False
        store = await self._app.letters()
        begun = await self._begun(letter.id)
        if not begun:
            found = await store.get([letter.id])
            if not found:
                return False
            head = found[0].head
            if head.replays > letter.head.replays:
                return True  # an older copy of what is on its way, or back, already
            if not self._may_go(head):
                return False
            self._wait_for(head)
        await self._table.queued(transaction.transaction_id, was=Status.PROCESSING)
        engine = await self._app.engine()
        replay = Replay(store, engine.broker, self._clock, self._dice, engine.ledger)
        if not begun:
            query = f"id:{letter.id}"
            planned = await replay.begin([letter.id], BY, query=query, cap=self._limit)
            begun = planned.id
        campaign = await replay.run(begun)
        return not campaign.counts.get(Outcome.SKIPPED)  # somebody was quicker

    def _may_go(self, head: LetterHead) -> bool:
        return head.state is not State.QUARANTINED and head.replays < self._limit

    def _wait_for(self, head: LetterHead) -> None:
        early = (head.dead_at + self._delay - self._clock.now()).total_seconds()
        if early > 0:
            raise RetryLater(early, "it is sent back when some time has passed")

    async def _begun(self, letter_id: str) -> str:
        """The replay of ours that a crash has interrupted; nothing if there is none."""
        items = await (await self._app.letters()).replays([letter_id])
        last = items[-1] if items else None
        is_open = last and last.outcome in {Outcome.PLANNED, Outcome.SENDING}
        return last.campaign if last and is_open and last.actor == BY.actor else ""
