"""One letter of a dead-letter mailbox: hand it to the handler, settle it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from deadletter.core.attempts import append, attempt_of, last_number
from deadletter.core.capture import capture
from deadletter.core.classify import ErrorClassifier
from deadletter.core.decision import Ack, Retry
from deadletter.core.errors import Signal
from deadletter.core.events import (
    ACTIONS,
    HeadersIgnored,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    Observer,
)
from deadletter.core.failure import Failure, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_mail import claims_letter, from_message
from deadletter.core.message import Delivery
from deadletter.core.signing import Keys
from deadletter.ports import Acked, Clock, Fate, Released, Settlement, Source

from .loop import was_cancelled
from .reach import Reach

LetterHandler: TypeAlias = Callable[[DeadLetter], Awaitable[object]]

_DEATHS: Final = 2  # of our process, before a letter has to wait like a failed one


class LetterAttempts:
    """Runs a handler on letters and settles them; what fails stays in its mailbox."""

    def __init__(
        self,
        *,
        source: Source,
        handler: LetterHandler,
        reach: Reach,
        clock: Clock,
        observe: Observer,
        classifier: ErrorClassifier,
        on_failure: float,
        discard_failures: bool,
        keys: Keys,
    ) -> None:
        self._source = source
        self._handler = handler
        self._reach = reach
        self._clock = clock
        self._observe = observe
        self._classifier = classifier
        self._on_failure = on_failure
        self._discard_failures = discard_failures
        self._keys = keys

    async def run(self, delivery: Delivery) -> None:
        """Run the handler; raises only when cancelled, with nothing settled then."""
        letter = self._letter(delivery)
        deaths = delivery.attempt - 1 - last_number(delivery.history)
        if delivery.suspect and deaths >= _DEATHS:
            # Nobody buries it here, so it would kill one process after another.
            await self._refuse(delivery, letter, _worker_lost(deaths))
            return
        if delivery.corrupt:
            await self._refuse(delivery, letter, _corrupt(delivery))
            return
        started = self._clock.monotonic()
        try:
            did = await self._handler(letter)
        except BaseException as error:
            if was_cancelled():
                raise asyncio.CancelledError from error
            await self._failed(delivery, letter, error, started)
        else:
            action = did if isinstance(did, str) and did in ACTIONS else "processed"
            await self._handled(delivery, letter, started, action)

    def _letter(self, delivery: Delivery) -> DeadLetter:
        message, mailbox = delivery.message, self._source.mailbox
        letter = from_message(message, mailbox, self._keys, self._clock.now())
        if claims_letter(letter.message.headers):
            id_ = message.id
            self._observe(
                HeadersIgnored(mailbox=mailbox, message_id=id_, what="letter")
            )
        return letter

    async def _failed(
        self,
        delivery: Delivery,
        letter: DeadLetter,
        error: BaseException,
        started: float,
    ) -> None:
        asked = error.decision if isinstance(error, Signal) else None
        if isinstance(asked, Ack):
            await self._handled(delivery, letter, started, "processed")
            return
        failure = capture(error, self._classifier, self._clock.now())
        if isinstance(asked, Retry):
            await self._refuse(delivery, letter, failure, asked.delay)
        elif self._discard_failures:
            self._tell_refused(letter, 0.0, failure)
            await self._handled(delivery, letter, started, "discarded")
        else:
            await self._refuse(delivery, letter, failure)

    async def _handled(
        self, delivery: Delivery, letter: DeadLetter, started: float, action: str
    ) -> None:
        seconds = self._clock.monotonic() - started
        fate = Fate.PURGED if action == "discarded" else Fate.HANDLED
        if not await self._settle(Acked(delivery, fate)):
            return
        age = (self._clock.now() - letter.head.dead_at).total_seconds()
        self._observe(
            LetterHandled(
                mailbox=self._source.mailbox,
                letter_id=letter.id,
                seconds=seconds,
                age=max(age, 0.0),
                action=action,
                message_id=letter.head.message_id,
                request_id=letter.head.business_key,
            )
        )

    async def _refuse(
        self,
        delivery: Delivery,
        letter: DeadLetter,
        failure: Failure,
        delay: float | None = None,
    ) -> None:
        delay = self._on_failure if delay is None else delay
        attempt = attempt_of(failure, number=delivery.attempt, at=self._clock.now())
        history = append(delivery.history, attempt)
        if await self._settle(Released(delivery, delay, history)):
            self._tell_refused(letter, delay, failure)

    def _tell_refused(self, letter: DeadLetter, delay: float, failure: Failure) -> None:
        self._observe(
            LetterRefused(
                mailbox=self._source.mailbox,
                letter_id=letter.id,
                delay=delay,
                failure=failure,
                message_id=letter.head.message_id,
                request_id=letter.head.business_key,
            )
        )

    async def _settle(self, settlement: Settlement) -> bool:
        """Settle it, however long that takes; False when it was no longer ours."""
        ours = await self._reach.patiently(
            "broker", lambda: self._source.settle([settlement])
        )
        if not ours[0]:
            delivery = settlement.delivery
            self._observe(
                LeaseLost(
                    mailbox=self._source.mailbox,
                    message_id=delivery.message.id,
                    attempt=delivery.attempt,
                )
            )
        return ours[0]


def _corrupt(delivery: Delivery) -> Failure:
    return Failure(
        trouble=Trouble.MALFORMED,
        code="CORRUPT",
        error_type="deadletter.Corrupt",
        text=delivery.unreadable,
    )


def _worker_lost(deaths: int) -> Failure:
    return Failure(
        trouble=Trouble.WORKER_LOST,
        code=Trouble.WORKER_LOST.name,
        error_type="deadletter.WorkerLost",
        text=f"the process that ran its handler died {deaths} times",
    )
