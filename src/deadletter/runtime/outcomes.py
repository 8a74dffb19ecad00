"""
Outcomes of attempts: their results, the events that report them, and burial.

Burial keeps the letter of a delivery while its lease is valid, then copies it. Where
mailboxes and office are one engine, the check and the keeping are one transaction.
Elsewhere the lease is extended first. A worker that freezes in between may keep the
letter of a message that another worker has by then. Settling notices that, and closes
the letter again if the message was handled.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from deadletter.core.burial import burial as letter_of
from deadletter.core.burial import sign_copy
from deadletter.core.errors import ConfigError, Conflict, DeadLetterError, NotFound, Refused
from deadletter.core.events import (
    Buried,
    CopyFailed,
    FailedForGood,
    LeaseLost,
    Observer,
    OutOfReach,
    ReplyFailed,
    Retried,
    Succeeded,
)
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Failure, Retry
from deadletter.core.failure.clues import described
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message, bad_news, error_reply
from deadletter.core.policy import DLQPolicy
from deadletter.core.signing import Keys
from deadletter.intake.dialects import fenced
from deadletter.ports import AtomicBurial, Broker, Burial, Fate, Kept, LetterStore, Source

from .availability import Availability
from .deliveries import ClaimedDelivery
from .handlers import encode


class Finished(Struct, frozen=True, kw_only=True):
    """An attempt that has ended, and what is to become of its delivery."""

    held: ClaimedDelivery
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


Item = TypeVar("Item")
Answered = TypeVar("Answered")


async def bisect_rejected(
    call: Callable[[Sequence[Item]], Awaitable[Sequence[Answered]]], batch: Sequence[Item]
) -> Sequence[Answered | Refused]:
    """
    Call with a batch, and return the answer or the rejection of each item.

    A rejected batch is tried again in halves, so that one item does not hold up the
    others. `call` must do all of a batch or nothing, or be idempotent.
    """
    try:
        return await call(batch)
    except Refused as error:
        if len(batch) <= 1:
            return [error] * len(batch)
    half = len(batch) // 2
    return [*await bisect_rejected(call, batch[:half]), *await bisect_rejected(call, batch[half:])]


def report_rejected(letter: DeadLetter, error: Refused, observe: Observer) -> None:
    """Report a letter that the office rejects; its message stays in its mailbox."""
    observe(
        OutOfReach(mailbox=letter.head.source, what=f"letter {letter.id}", text=str(error), tries=1)
    )


T = TypeVar("T")


class Unkept(Enum):
    """Reason why a letter was not kept."""

    LOST = "lost"  # the delivery is somebody else's by now
    REFUSED = "refused"  # the office will not take it, now or later


Answer: TypeAlias = Kept | Refused | None
"""What became of one letter; None when its delivery is somebody else's by now."""

Keep: TypeAlias = Callable[[Sequence[Burial]], Awaitable[Sequence[Answer]]]


class Patience(Protocol):
    """Ways of calling a store: once, or until it works."""

    async def retry_until_available(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call what is named."""


class _AtOnce:
    async def retry_until_available(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()


AT_ONCE: Final[Patience] = _AtOnce()
"""Calls once: for loops that try again by themselves."""


def keeper(
    source: Source,
    letters: LetterStore,
    atomic_burial: AtomicBurial | None,
    *,
    lease: float,
    patience: Patience,
) -> Keep:
    """Return the safest way there is to keep letters of one mailbox's deliveries."""
    if atomic_burial is not None:
        keep = partial(bisect_rejected, atomic_burial.bury)
        return lambda burials: patience.retry_until_available("office", partial(keep, burials))

    async def in_turn(burials: Sequence[Burial]) -> Sequence[Answer]:
        deliveries = [burial.delivery for burial in burials]
        extend = partial(source.extend, deliveries, lease=lease)
        ours = await patience.retry_until_available("broker", extend)
        mine = [b.letter for b, flag in zip(burials, ours, strict=True) if flag]
        keep = partial(bisect_rejected, letters.keep, mine)
        kept = iter(await patience.retry_until_available("office", keep) if mine else ())
        return [next(kept) if flag else None for flag in ours]

    return in_turn


def burial_of(finished: Finished, *, now: datetime, consumer: str, version: str) -> Burial:
    """Return the delivery that is given up, with its letter."""
    assert isinstance(finished.decision, Bury)
    assert finished.failure is not None
    delivery = finished.held.delivery
    letter = letter_of(
        delivery,
        finished.failure,
        finished.decision,
        history=finished.history or "",
        now=now,
        consumer=consumer,
        version=version,
    )
    message = fenced(letter.message)
    if message is not letter.message:  # hardly ever
        letter = structs.replace(letter, message=message)
    return Burial(delivery, letter)


async def bury(keep: Keep, burials: Sequence[Burial], observe: Observer) -> list[Kept | Unkept]:
    """Keep the letters, and report those that the office rejects."""
    if not burials:
        return []
    answers = await keep(burials)
    return [_read(burial, answer, observe) for burial, answer in zip(burials, answers, strict=True)]


def _read(burial: Burial, answer: Answer, observe: Observer) -> Kept | Unkept:
    if isinstance(answer, Kept):
        return answer
    if answer is None:
        return Unkept.LOST
    report_rejected(burial.letter, answer, observe)
    return Unkept.REFUSED


def is_left_to_broker(delivery: Delivery, policy: DLQPolicy, route: str | None) -> bool:
    """
    Return whether the broker itself moves a buried message to its dead-letter mailbox.

    Then the message is released, and neither copied nor deleted.
    """
    to = policy.dead_mailbox(delivery.mailbox, route)
    return bool(delivery.moves_to) and to in {None, delivery.moves_to}


async def copy_letters(
    letters: Sequence[DeadLetter],
    *,
    broker: Broker,
    policy: DLQPolicy,
    keys: Keys,
    observe: Observer,
    availability: Availability | None = None,
) -> None:
    """
    Copy letters to their dead-letter mailboxes, returning once those have them.

    The letters are kept already. A mailbox that cannot be reached is waited for
    (without a `availability`, its error is raised); one that refuses a copy is told of
    and not asked again, or the message would never leave its own mailbox.
    """
    by_mailbox: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        to = policy.dead_mailbox(letter.head.source, letter.route)
        if to is not None:
            by_mailbox.setdefault(to, []).append(letter)
    for to, copied in by_mailbox.items():
        send = partial(_send, broker, to, policy, keys)
        call = partial(bisect_rejected, send, copied)
        if availability is None:
            answers = await call()
        else:
            answers = await availability.retry_until_available(f"mailbox {to}", call)
        for letter, answer in zip(copied, answers, strict=True):
            if isinstance(answer, Refused):
                mailbox, text = letter.head.source, str(answer)
                observe(CopyFailed(mailbox=mailbox, letter_id=letter.id, to=to, text=text))


async def _send(
    broker: Broker, to: str, policy: DLQPolicy, keys: Keys, letters: Sequence[DeadLetter]
) -> Sequence[None]:
    try:
        copies = [policy.dead_copy(letter) for letter in letters]
    except Exception as error:  # theirs, when they make copies of their own
        text = f"dead_copy raised {described(error)}"
        raise Refused(text) from error
    signed = [
        sign_copy(copy, letter, to, keys) for copy, letter in zip(copies, letters, strict=True)
    ]
    try:
        await broker.sink(to).send(signed)
    except (ConfigError, Conflict, NotFound) as error:
        # No such mailbox, or not one for letters: asking again does not help.
        raise Refused(str(error)) from error
    return [None] * len(letters)


def worded(
    policy: DLQPolicy,
    delivery: Delivery,
    decision: Decision,
    failure: Failure,
    *,
    id: str,
    now: datetime,
) -> Message:
    """Return the bad news in the policy's words; in ours, if its own cannot be had."""
    try:
        news, _ = encode(policy.bad_news(delivery, decision, failure))
    except Exception:  # noqa: BLE001 -- it may be anybody's code
        news, _ = encode(bad_news(delivery, decision, failure))
    return error_reply(delivery, failure, news, id=id, now=now)


async def send_reply(
    reply: Message, delivery: Delivery, *, broker: Broker, observe: Observer
) -> None:
    """Send it to whoever asked; one that cannot be sent is told of, and that is all."""
    message = delivery.message
    if message.reply_to is None:
        return
    try:
        await broker.sink(message.reply_to).send([reply])
    except DeadLetterError as error:  # the name came with the message
        observe(
            ReplyFailed(
                mailbox=delivery.mailbox,
                message_id=message.id,
                reply_to=message.reply_to,
                text=str(error),
            )
        )
