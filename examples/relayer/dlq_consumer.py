"""
The DLQ consumer: records the end of each transaction that SQS has moved.

    letter kept  ->  transaction finished already?  ->  retryOnFailure?  ->  failed  ->  deleted

A message is deleted when all of that is recorded, and not before. An error on the way is
raised, and the message is received again.
"""

from deadletter import App, DeadLetter, Failure, Trouble
from deadletter.core.failure import Reason
from deadletter.core.letter import By
from deadletter.profiles.projection import taken

from .reprocessing import Reprocessing
from .settings import DEAD_QUEUE, QUEUE, Settings
from .table import Table
from .values import UNFINISHED, Status, Transaction, read_message


class DeadLetterConsumer:
    """Works the dead-letter queue."""

    def __init__(
        self, app: App, settings: Settings, table: Table, reprocessing: Reprocessing
    ) -> None:
        self._app = app
        self._profile = settings.profile
        self._lease = settings.dead_lease
        self._table = table
        self._reprocessing = reprocessing

    def register(self) -> None:
        """Have the app run it; a message that fails is received again by a later poll."""
        how = self._profile.dlq_consumer
        assert how is not None
        self._app.letter_handler(
            DEAD_QUEUE,
            interval=how.interval,
            wait=how.wait,
            visibility_timeout=self._lease,
            on_failure=how.interval,
        )(self.settle)

    async def settle(self, letter: DeadLetter) -> str:
        """Bring one message to its end; return what was done."""
        message = read_message(letter.message.body)
        if letter.head.source == DEAD_QUEUE:
            letter = await self._kept(letter, is_readable=message is not None)
        if message is None:
            failure = failure_of(letter)
            await self._table.reject(letter.message.id, letter.message.body, failure)
            return "processed"
        transaction = await self._table.add(message)
        if transaction.status not in UNFINISHED:
            await self._close(letter, transaction)
            return "processed"
        if transaction.retry_on_failure:
            is_sent = await self._reprocessing.send_back(letter, transaction)
            if is_sent:
                return "replayed"
        await self._table.fail(transaction.transaction_id, failure_of(letter))
        return "processed"

    async def _kept(self, letter: DeadLetter, *, is_readable: bool) -> DeadLetter:
        """Keep the letter of a message that somebody sent to the dead-letter queue."""
        store = await self._app.letters()
        (kept,) = await store.keep([letter_of(letter, is_readable=is_readable)])
        (stored,) = await store.get([kept.id])
        return stored

    async def _close(self, letter: DeadLetter, transaction: Transaction) -> None:
        """Close the letter of a transaction that succeeded after all."""
        if transaction.status is not Status.FAILED:
            office = await self._app.office()
            why = f"the transaction is {transaction.status}"
            await office.letters.close([letter.id], By("dlq-consumer", why))


def failure_of(letter: DeadLetter) -> Failure:
    """Return the last failure of a letter."""
    head = letter.head
    return Failure(
        trouble=head.trouble,
        code=head.code,
        error_type=head.error_type,
        text=head.error_text or head.reason_text,
    )


def letter_of(letter: DeadLetter, *, is_readable: bool) -> DeadLetter:
    """
    Return the letter of a message that neither SQS nor a worker has moved.

    It is the same letter each time that the message is received.
    """
    failure = Failure(
        trouble=Trouble.UNKNOWN,
        code="SENT_TO_DLQ",
        error_type="",
        text=f"sent to {DEAD_QUEUE}, and not by SQS: nobody said why",
    )
    if not is_readable:
        failure = Failure(
            trouble=Trouble.MALFORMED,
            code="INVALID",
            error_type="",
            text=f"found in {DEAD_QUEUE}: this is not a transaction",
        )
    return taken(
        letter.message,
        failure,
        source=QUEUE,
        reason=Reason.OPERATOR if is_readable else Reason.UNDECODABLE,
        attempts=0,
        dead_at=letter.head.dead_at,
    )
