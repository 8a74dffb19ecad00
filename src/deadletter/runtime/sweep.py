"""
The second decider: for deliveries whose worker is gone.

Takes back what lost workers held, so that it is run again, alone, and buries what
is past saving even where no worker is left to do it. Any process may sweep, and
all of them may at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from deadletter.core.burial import burial
from deadletter.core.campaign import Outcome
from deadletter.core.decision import Bury
from deadletter.core.errors import BackendError
from deadletter.core.events import Buried, Observer, OutOfReach, SuspectsFound
from deadletter.core.letter_mail import to_message
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy
from deadletter.core.refusal import doom, refusal, refused_history
from deadletter.ports import (
    Acked,
    Broker,
    Clock,
    Fate,
    Ledger,
    LedgerClaim,
    LedgerState,
    LetterStore,
    ReplaySettled,
)

from .finished import as_kept
from .heartbeat import Heartbeat
from .once import ledger_key
from .solitude import Solitude

LEDGER_LEASE: Final = 60.0  # seconds a key is ours while we bury
LEDGER_TTL: Final = 30 * 86_400.0


class Sweep:
    """Sweeps a broker's mailboxes now and then."""

    name = "sweep"

    def __init__(
        self,
        *,
        broker: Broker,
        letters: LetterStore,
        ledger: Ledger | None,
        policies: Mapping[str, DLQPolicy],
        solitude: Solitude,
        clock: Clock,
        observe: Observer,
        interval: float = 1.0,
        version: str = "",
    ) -> None:
        self.heartbeat = Heartbeat(clock)
        self._broker = broker
        self._letters = letters
        self._ledger = ledger
        self._policies = policies
        self._solitude = solitude
        self._clock = clock
        self._observe = observe
        self._interval = interval
        self._version = version
        self._trouble: str | None = None

    def ready(self) -> str | None:
        """Why sweeping does not work at the moment; None when it does."""
        return self._trouble

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep every `interval` seconds until `stop` is set."""
        waiting = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self.heartbeat.beat()
                await self._guarded()
                await asyncio.wait({waiting}, timeout=self._interval)
        finally:
            waiting.cancel()

    async def once(self) -> int:
        """Sweep now; how many deliveries were taken back or buried."""
        found = await self._broker.sweep()
        if found.lost:
            self._observe(SuspectsFound(mailbox="*", lost=found.lost))
        self._solitude.suspects.update(found.suspects)
        by_mailbox: dict[str, list[Delivery]] = {}
        for delivery in found.doomed:
            by_mailbox.setdefault(delivery.mailbox, []).append(delivery)
        for mailbox, doomed in by_mailbox.items():
            await self._bury(mailbox, doomed)
        if self._ledger is not None:
            await self._ledger.forget()
        return found.lost + len(found.doomed)

    async def _guarded(self) -> None:
        try:
            while await self.once():
                self.heartbeat.beat()
        except BackendError as error:
            if self._trouble is None:
                self._observe(
                    OutOfReach(mailbox="*", what="sweep", text=str(error), tries=1)
                )
            self._trouble = f"sweeping failed: {error}"
        else:
            self._trouble = None

    async def _bury(self, mailbox: str, doomed: Sequence[Delivery]) -> None:
        doomed, claims = await self._unhandled(mailbox, doomed)
        now = self._clock.now()
        policy = self._policies.get(mailbox, DLQPolicy())
        # The sweep's claim is not an attempt: what is refused is the next one.
        nexts = [structs.replace(d, attempt=d.attempt + 1) for d in doomed]
        fates = [(delivery, doom(delivery, policy, now)) for delivery in nexts]
        buried = [(d, bury) for d, bury in fates if isinstance(bury, Bury)]
        failures = [refusal(delivery, bury, now) for delivery, bury in buried]
        letters = [
            burial(
                delivery,
                failure,
                bury,
                history=refused_history(delivery, failure, now),
                now=now,
                consumer=self.name,
                version=self._version,
            )
            for (delivery, bury), failure in zip(buried, failures, strict=True)
        ]
        # Keep first, forget second, as everywhere.
        kept = await self._letters.keep(letters) if letters else ()
        for letter, answer in zip(letters, kept, strict=True):
            if (to := policy.dead_mailbox(mailbox, letter.route)) is not None:
                copy = to_message(as_kept(letter, answer))
                await self._broker.sink(to).send([copy])
        if failed := [d for d, bury in fates if not isinstance(bury, Bury)]:
            await self._fail_replays(failed)
        if claims and self._ledger is not None:
            ended = [(claim, LedgerState.DEAD_LETTERED) for claim in claims]
            await self._ledger.finish(ended, ttl=LEDGER_TTL)
        await self._broker.source(mailbox).settle(
            [
                Acked(delivery, Fate.BURIED if isinstance(bury, Bury) else Fate.FAILED)
                for delivery, bury in fates
            ]
        )
        for (delivery, bury), failure, answer in zip(
            buried, failures, kept, strict=True
        ):
            self._observe(
                Buried(
                    mailbox=mailbox,
                    message_id=delivery.message.id,
                    letter_id=answer.id,
                    attempt=delivery.attempt,
                    reason=bury.reason,
                    text=bury.text,
                    failure=failure,
                    is_new=answer.is_new,
                )
            )

    async def _fail_replays(self, failed: Sequence[Delivery]) -> None:
        """Tell the letters whose copies these are: no letter comes back for them."""
        outcomes = [
            ReplaySettled(lineage.letter_id, lineage.generation, Outcome.FAILED)
            for delivery in failed
            if (lineage := delivery.message.lineage) is not None
        ]
        if outcomes:
            await self._letters.settle_replays(outcomes)

    async def _unhandled(
        self, mailbox: str, doomed: Sequence[Delivery]
    ) -> tuple[Sequence[Delivery], Sequence[LedgerClaim]]:
        """
        What the ledger does not say was handled, with the claims on its keys.

        A worker that was too slow for its lease may have done the work, or do it
        still: from now on it can no longer say so.
        """
        if self._ledger is None:
            return doomed, ()
        keys = [ledger_key(mailbox, delivery) for delivery in doomed]
        states = await self._ledger.look(keys)
        known = [key for key, state in zip(keys, states, strict=True) if state]
        if not known:
            return doomed, ()
        claims = await self._ledger.begin(known, lease=LEDGER_LEASE)
        done = {c.key for c in claims if c.state is LedgerState.PROCESSED}
        handled = [d for d, key in zip(doomed, keys, strict=True) if key in done]
        if handled:
            await self._broker.source(mailbox).settle(
                [Acked(delivery, Fate.DUPLICATE) for delivery in handled]
            )
        left = [d for d, key in zip(doomed, keys, strict=True) if key not in done]
        return left, [claim for claim in claims if claim.mine]
