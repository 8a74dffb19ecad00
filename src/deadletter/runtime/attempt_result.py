"""The result of an attempt, and the event that reports it."""

from msgspec import Struct, structs

from deadletter.core.events import Buried, FailedForGood, LeaseLost, Observer, Retried, Succeeded
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Failure, Retry
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.ports import Fate, Kept

from .lease_keeper import Held


class Finished(Struct, frozen=True, kw_only=True):
    """An attempt that has ended, and what is to become of its delivery."""

    held: Held
    decision: Decision
    seconds: float = 0.0
    failure: Failure | None = None
    history: str | None = None  # None leaves the story as it is
    reply: Message | None = None
    result: bytes | None = None  # what the handler returned, as JSON
    fate: Fate = Fate.HANDLED


def as_kept(letter: DeadLetter, kept: Kept) -> DeadLetter:
    """Return the letter under the id the office gave it, which its copies go by."""
    if letter.id == kept.id:
        return letter
    head = structs.replace(letter.head, id=kept.id, conflict=kept.conflict)
    return structs.replace(letter, head=head)


def report(
    finished: Finished, kept: Kept | None, observe: Observer, *, applied: bool, consumer: str = ""
) -> None:
    """Report what became of a delivery, once it is settled."""
    delivery, failure = finished.held.delivery, finished.failure
    mailbox, message_id = delivery.mailbox, delivery.message.id
    attempt = delivery.attempt
    if not applied:
        observe(LeaseLost(mailbox=mailbox, message_id=message_id, attempt=attempt))
        return
    match finished.decision:
        case Ack() | Continue():
            observe(
                Succeeded(
                    mailbox=mailbox,
                    message_id=message_id,
                    attempt=attempt,
                    seconds=finished.seconds,
                    fate=finished.fate.value,
                )
            )
        case Retry(delay, charged) if failure is not None:
            observe(
                Retried(
                    mailbox=mailbox,
                    message_id=message_id,
                    attempt=attempt,
                    delay=delay,
                    charged=charged,
                    failure=failure,
                    seconds=finished.seconds,
                )
            )
        case Bury(reason, text) if failure is not None and kept is not None:
            observe(
                Buried(
                    mailbox=mailbox,
                    message_id=message_id,
                    letter_id=kept.id,
                    attempt=attempt,
                    reason=reason,
                    text=text,
                    failure=failure,
                    is_new=kept.is_new,
                    conflict=kept.conflict,
                    request_id=delivery.message.idempotency_key,
                    consumer=consumer,
                    seconds=finished.seconds,
                )
            )
        case Fail(text) if failure is not None:
            observe(
                FailedForGood(
                    mailbox=mailbox,
                    message_id=message_id,
                    attempt=attempt,
                    text=text,
                    failure=failure,
                    seconds=finished.seconds,
                )
            )
        case _:
            pass  # released on shutdown: nothing to report
