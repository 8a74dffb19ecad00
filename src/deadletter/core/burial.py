"""Dead letters from deliveries, and their copies in dead-letter mailboxes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import structs

from .attempts import Attempt, Mark, append, attempt_of, ends, read
from .failure import Bury, Failure, Reason, Trouble
from .failure.capture import TEXT_LIMIT
from .failure.fingerprint import fingerprint
from .ids import body_digest, letter_id
from .letter import DeadLetter, LetterHead
from .message import Delivery, Headers, Message, trace_id
from .redact import redact
from .signing import SIGNATURE_LENGTH, Keys, Part, sign_lineage
from .text import cut, plain

RETRY_WISH: Final = "retry-on-failure"
"""The header by which a producer asks for replay: `true` or `false`."""

_LONGEST: Final = TEXT_LIMIT + 1_000  # enough to mask a secret at the limit as a whole
_RUN: Final = frozenset({"failed", "continued"})  # outcomes of a handler that ran
_DECIDED_BEFORE: Final = frozenset(
    {Reason.WORKER_LOST, Reason.EXPIRED, Reason.ATTEMPTS_EXHAUSTED, Reason.ID_CONFLICT}
)


def burial(
    delivery: Delivery,
    failure: Failure,
    bury: Bury,
    *,
    history: str,
    now: datetime,
    consumer: str,
    version: str,
) -> DeadLetter:
    """
    Return the dead letter of a delivery that is given up.

    The letter's id depends only on the source and id of the message, so every burial of it
    gives the same letter. A replayed copy returns to the letter it was made from.
    """
    message = delivery.message
    first, last = ends(history)
    head = LetterHead(
        id=_id(delivery),
        source=delivery.mailbox,
        message_id=message.id,
        partition=delivery.partition,
        key=message.key,
        business_key=message.idempotency_key,
        reason=bury.reason,
        # A handler may have put anything into it, even the content of its message.
        reason_text=_fit(bury.text[:_LONGEST]),
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        error_text=failure.text,
        fingerprint=fingerprint(delivery.mailbox, failure),
        attempts=_attempts(delivery, bury.reason, last),
        first_failed_at=now if first is None else first.at,
        dead_at=now,
        consumer=consumer,
        version=version,
        trace_id=trace_id(message.traceparent),
        replays=message.generation,
        conflict=bury.reason is Reason.ID_CONFLICT,
        size=len(message.body),
    )
    return DeadLetter(
        head=head,
        message=message,
        history=history,
        position=delivery.position,
        first_received_at=delivery.first_received_at,
        frame=failure.frame,
        route=bury.route,
        retry_wish=wish_of(message),
    )


def broker_burial(delivery: Delivery, now: datetime) -> DeadLetter:
    """
    Return the letter of a message that its broker moved away after too many deliveries.

    The worker that had it last died, or reported to nobody: only the number of deliveries is
    known. The id is the one that a burial by the worker would have given.
    """
    message, move = delivery.message, delivery.moved
    assert move is not None
    failure = failure_of_move(delivery)
    first = structs.replace(
        delivery, mailbox=move.source, attempt=move.receives, spared=0, history=""
    )
    attempt = attempt_of(
        failure,
        number=move.receives,
        at=now,
        outcome=failure.trouble.value,
        generation=message.generation,
    )
    letter = burial(
        first,
        failure,
        Bury(Reason.ATTEMPTS_EXHAUSTED, failure.text),
        history=append("", attempt),
        now=now,
        consumer="",
        version="",
    )
    return structs.replace(letter, head=structs.replace(letter.head, attempts=move.receives))


def failure_of_move(delivery: Delivery) -> Failure:
    """Return the failure of a message that its broker moved, as far as it is known."""
    receives = 0 if delivery.moved is None else delivery.moved.receives
    received = f"received {receives} times" if receives else "received too often"
    return Failure(
        trouble=Trouble.WORKER_LOST,
        code="RECEIVED_TOO_OFTEN",
        error_type="deadletter.ReceivedTooOften",
        text=f"moved by its broker: {received}, and no worker reported a result",
    )


@lru_cache(maxsize=256)  # mostly the same texts of a policy
def _fit(text: str) -> str:
    return cut(redact(plain(text)), TEXT_LIMIT)


def _id(delivery: Delivery) -> str:
    message = delivery.message
    if message.lineage is not None:
        return message.lineage.letter_id
    return letter_id(delivery.mailbox, delivery.partition, message.id)


def _attempts(delivery: Delivery, reason: Reason, last: Mark | None) -> int:
    # The claim that found the message expired or exhausted was counted as well, but
    # its handler did not run.
    if reason not in _DECIDED_BEFORE:
        return delivery.charged
    ran = last and last.number >= delivery.attempt and last.outcome in _RUN
    return delivery.charged if ran else delivery.charged - 1


def wish_of(message: Message) -> bool | None:
    """Return whether the producer asked for replay on failure; None when it did not say."""
    if not message.headers:
        return None
    wish = (message.header(RETRY_WISH) or "").strip().lower()
    return {"true": True, "false": False}.get(wish)


BUDGET: Final = 4096  # bytes of all our headers together, names included

# Names in wire order with the most their values may take; the error's text and
# stack share what is left, the stack giving way first.
_LIMITS: Final = {
    "dlq-id": 64,
    "dlq-reason": 32,
    "dlq-trouble": 32,
    "dlq-code": 80,
    "dlq-error-type": 240,
    "dlq-attempts": 12,
    "dlq-first-received-at": 40,
    "dlq-first-failed-at": 40,
    "dlq-failed-at": 40,
    "dlq-source": 240,
    "dlq-partition": 120,
    "dlq-position": 120,
    "dlq-consumer": 160,
    "dlq-app-version": 80,
    "dlq-fingerprint": 80,
    "dlq-expires-at": 40,
}
_TEXT: Final = "dlq-error-message"
_STACK: Final = "dlq-error-stack"
_SIGNATURE: Final = "dlq-signature"
_TEXT_LIMIT: Final = 1000
NAMES: Final = frozenset({*_LIMITS, _TEXT, _STACK, _SIGNATURE})
_IDENTITY: Final = ("dlq-id", "dlq-source", "dlq-partition", "dlq-fingerprint")
_PURPOSE: Final = "letter"
Word = TypeVar("Word", Reason, Trouble)


def to_message(letter: DeadLetter) -> Message:
    """
    Return the copy of a letter for a dead-letter mailbox.

    The copy does not expire there, even if the message did: an expired copy would disappear
    unnoticed.
    """
    values = _summary(letter)
    short = [(name, _head(values[name], limit)) for name, limit in _LIMITS.items()]
    text = _head(letter.head.error_text, _TEXT_LIMIT)
    taken = sum(len(name) + len(value) for name, value in short)
    taken += len(_SIGNATURE) + SIGNATURE_LENGTH
    left = BUDGET - taken - len(_TEXT) - len(text) - len(_STACK)
    ours = (*short, (_TEXT, text), (_STACK, _tail(_stack(letter), left)))
    message = letter.message
    return structs.replace(message, headers=(*message.headers, *ours), expires_at=None)


def sign_copy(copy: Message, letter: DeadLetter, mailbox: str, keys: Keys) -> Message:
    """
    Sign the copy of a letter for the dead-letter mailbox it goes to.

    A policy may make its own copies. A copy that does not name its letter, or names another
    one, is not signed.
    """
    copy = sign_lineage(copy, mailbox, keys)
    _, ours = _split(copy.headers)
    ours.pop(_SIGNATURE, None)  # one sent by the producer; ours follows
    values = _summary(letter)
    if any(ours.get(name) != _head(values[name], _LIMITS[name]).decode() for name in _IDENTITY):
        return copy
    signature = keys.sign(_PURPOSE, *_signed(copy, mailbox, ours))
    headers = (*copy.headers, (_SIGNATURE, signature.encode()))
    return structs.replace(copy, headers=headers)


def claims_letter(headers: Headers) -> bool:
    """Return whether headers claim, signed or not, to be the copy of a letter."""
    return any(name == "dlq-id" for name, _ in headers)


def is_copy(message: Message, mailbox: str, keys: Keys) -> bool:
    """Return whether this message is a signed copy of a letter in this mailbox."""
    _, ours = _split(message.headers)
    signature = ours.pop(_SIGNATURE, "")
    return "dlq-id" in ours and keys.verifies(signature, _PURPOSE, *_signed(message, mailbox, ours))


def from_message(message: Message, mailbox: str, keys: Keys, now: datetime) -> DeadLetter:
    """
    Return the letter of a message in the dead-letter mailbox `mailbox`.

    Never raises. A message without a valid signature becomes a letter too, of which only the
    contents and the mailbox are known.
    """
    if not is_copy(message, mailbox, keys):
        return _foreign(message, mailbox, now)
    theirs, ours = _split(message.headers)
    original = structs.replace(
        message, headers=theirs, expires_at=_time(ours.get("dlq-expires-at", ""))
    )
    source = ours.get("dlq-source") or mailbox
    partition = ours.get("dlq-partition", "")
    known_as = ours["dlq-id"]
    dead_at = _time(ours.get("dlq-failed-at", "")) or message.sent_at
    attempt = Attempt(
        number=_number(ours.get("dlq-attempts", "")),
        at=dead_at,
        trouble=_member(Trouble, ours.get("dlq-trouble", ""), Trouble.UNKNOWN),
        code=ours.get("dlq-code", ""),
        error_type=ours.get("dlq-error-type", ""),
        text=ours.get(_TEXT, ""),
        stack=ours.get(_STACK, ""),
        version=ours.get("dlq-app-version", ""),
    )
    head = LetterHead(
        id=known_as,
        source=source,
        message_id=message.id,
        partition=partition,
        key=message.key,
        business_key=message.idempotency_key,
        reason=_member(Reason, ours.get("dlq-reason", ""), Reason.OPERATOR),
        trouble=attempt.trouble,
        code=attempt.code,
        error_type=attempt.error_type,
        error_text=attempt.text,
        fingerprint=ours.get("dlq-fingerprint", ""),
        attempts=attempt.number,
        first_failed_at=_time(ours.get("dlq-first-failed-at", "")) or dead_at,
        dead_at=dead_at,
        consumer=ours.get("dlq-consumer", ""),
        version=attempt.version,
        trace_id=trace_id(message.traceparent),
        replays=message.generation,
        conflict=_is_conflict(known_as, source, partition, message),
        size=len(message.body),
    )
    return DeadLetter(
        head=head,
        message=original,
        history=append("", attempt),
        position=ours.get("dlq-position") or None,
        first_received_at=_time(ours.get("dlq-first-received-at", "")),
        retry_wish=wish_of(original),
    )


def _signed(message: Message, mailbox: str, ours: dict[str, str]) -> Iterator[Part]:
    """Return everything that a signature covers, in order."""
    yield from (mailbox, message.id, body_digest(message.body))
    for pair in sorted(ours.items()):
        yield from pair


def _summary(letter: DeadLetter) -> dict[str, str]:
    head = letter.head
    return {
        "dlq-id": head.id,
        "dlq-reason": head.reason,
        "dlq-trouble": head.trouble,
        "dlq-code": head.code,
        "dlq-error-type": head.error_type,
        "dlq-attempts": str(head.attempts),
        "dlq-first-received-at": _written(letter.first_received_at),
        "dlq-first-failed-at": head.first_failed_at.isoformat(),
        "dlq-failed-at": head.dead_at.isoformat(),
        "dlq-source": head.source,
        "dlq-partition": head.partition,
        "dlq-position": letter.position or "",
        "dlq-consumer": head.consumer,
        "dlq-app-version": head.version,
        "dlq-fingerprint": head.fingerprint,
        "dlq-expires-at": _written(letter.message.expires_at),
    }


def _stack(letter: DeadLetter) -> str:
    last = read(letter.history.rpartition("\n")[2])
    return last[0].stack if last else ""


def _split(headers: Headers) -> tuple[Headers, dict[str, str]]:
    """Return the user's headers, and the last value of each of ours."""
    theirs: list[tuple[str, bytes]] = []
    ours: dict[str, str] = {}
    for name, value in reversed(headers):
        if name in NAMES and name not in ours:
            ours[name] = value.decode("utf-8", "replace")
        else:
            theirs.append((name, value))
    return tuple(reversed(theirs)), ours


def _foreign(message: Message, mailbox: str, now: datetime) -> DeadLetter:
    at = min(message.sent_at, now)
    head = LetterHead(
        id=letter_id(mailbox, "", message.id),
        source=mailbox,
        message_id=message.id,
        key=message.key,
        business_key=message.idempotency_key,
        reason=Reason.OPERATOR,
        reason_text=f"found in {mailbox}; it does not say how it got there",
        attempts=0,
        first_failed_at=at,
        dead_at=at,
        trace_id=trace_id(message.traceparent),
        replays=message.generation,
        size=len(message.body),
    )
    return DeadLetter(head=head, message=message, retry_wish=wish_of(message))


def _is_conflict(known_as: str, source: str, partition: str, message: Message) -> bool:
    if known_as == letter_id(source, partition, message.id):
        return False
    twist = body_digest(message.body)
    return known_as == letter_id(source, partition, message.id, twist)


def _member(kind: type[Word], text: str, otherwise: Word) -> Word:
    try:
        return kind(text)
    except ValueError:
        return otherwise


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0


def _written(time: datetime | None) -> str:
    return time.isoformat() if time else ""


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        # A time zone may move it out of the range of years: an OverflowError.
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _head(text: str, limit: int) -> bytes:
    """Return the beginning of a text, cut between characters."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore").encode()


def _tail(text: str, limit: int) -> bytes:
    """Return the end of a text; of a stack, it is the part that names the error."""
    whole = text.encode("utf-8", "replace")
    return whole[-limit:].decode("utf-8", "ignore").encode() if limit > 0 else b""
