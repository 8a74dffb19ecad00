"""
The DLQ consumer: what failed three times ends here, or is sent back on request.

    kept in the office  ->  over already?  ->  wanted again?  ->  failed  ->  deleted

A message is deleted when all of that is written down, and not before: whatever
fails on the way is raised, and the message comes again.
"""

import msgspec
from msgspec.structs import replace

from deadletter import App, DeadLetter, Failure, Trouble
from deadletter.core.failure import Reason
from deadletter.core.letter import By
from deadletter.ports import Clock
from deadletter.profiles.projection import taken

from .reprocessing import Reprocessing
from .settings import DEAD_QUEUE, QUEUE, Settings
from .table import Table
from .values import UNFINISHED, RelayMessage, Status, Transaction


class DeadLetterConsumer:
    """Works the dead-letter queue."""

    def __init__(
        self, app: App, settings: Settings, table: Table, reprocessing: Reprocessing, clock: Clock
    ) -> None:
        self._app = app
        self._profile = settings.profile
        self._lease = settings.dead_lease
        self._table = table
        self._reprocessing = reprocessing
        self._clock = clock

    def register(self) -> None:
        """Have the app run it; what fails comes again with a later poll."""
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
        """Bring one message to its end; says how."""
        store = await self._app.letters()
        message = read(letter.message.body)
        if letter.head.source != QUEUE:
            told = unburied(
                letter, receives=self._profile.policy.max_attempts, is_readable=message is not None
            )
            (kept,) = await store.keep([told])
            (letter,) = await store.get([kept.id])
        if message is None:
            await self._table.fail(named(letter.message.body), failure_of(letter))
            return "processed"  # its letter is all there is, and it stays
        transaction = await self._table.add(message)
        if transaction.status not in UNFINISHED:
            await self._over(letter, transaction)
            return "processed"
        wanted = transaction.retry_on_failure
        if wanted and await self._reprocessing.send_back(letter, transaction):
            return "replayed"
        await self._table.fail(transaction.transaction_id, failure_of(letter))
        return "processed"

    async def _over(self, letter: DeadLetter, transaction: Transaction) -> None:
        """Close the letter of a transaction that went through after all."""
        if transaction.status is not Status.FAILED:
            office = await self._app.office()
            why = f"the transaction is {transaction.status}"
            await office.letters.close([letter.id], By("dlq-consumer", why))


def read(body: bytes) -> RelayMessage | None:
    """What is on the queue; None when it is something else."""
    try:
        return msgspec.json.decode(body, type=RelayMessage)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def named(body: bytes) -> str:
    """The transaction that a body names, though it cannot be read; else nothing."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["transactionId"], type=str)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        return ""


def failure_of(letter: DeadLetter) -> Failure:
    """What a letter says went wrong last."""
    head = letter.head
    return Failure(
        trouble=head.trouble,
        code=head.code,
        error_type=head.error_type,
        text=head.error_text or head.reason_text,
    )


def unburied(letter: DeadLetter, *, receives: int, is_readable: bool) -> DeadLetter:
    """
    The letter of a message that nobody has buried.

    SQS moves what was received three times and never deleted: its workers died, or
    were not ours. Told the same way each time, it is the same letter each time.
    """
    failure = Failure(
        trouble=Trouble.WORKER_LOST,
        code="RECEIVED_TOO_OFTEN",
        error_type="",
        text=f"moved by SQS: received {receives} times, and nobody answered for it",
    )
    if not is_readable:
        failure = Failure(
            trouble=Trouble.MALFORMED,
            code="INVALID",
            error_type="",
            text=f"found in {DEAD_QUEUE}: this is not a transaction",
        )
    message = letter.message
    told = taken(
        message,
        failure,
        source=QUEUE,
        reason=Reason.ATTEMPTS_EXHAUSTED if is_readable else Reason.UNDECODABLE,
        attempts=receives,
        dead_at=letter.head.dead_at,
    )
    if message.lineage is None:
        return told
    # A copy that was sent back returns to the letter it came from.
    back = message.lineage.letter_id
    return replace(told, head=replace(told.head, id=back, replays=message.generation))
