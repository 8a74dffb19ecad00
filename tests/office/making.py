"""Letters for tests: plain ones, with whatever a test wants different."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from deadletter.core.attempts import Attempt, append
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import letter_id
from deadletter.core.letter import By, DeadLetter, LetterHead, State
from deadletter.core.message import Message, as_headers

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
BY = By("anna", "because")


def make_letter(
    number: int = 1,
    *,
    source: str = "orders",
    state: State = State.PENDING,
    error_type: str = "builtins.TimeoutError",
    error_text: str = "the bank did not answer",
    body: bytes | None = None,
    headers: dict[str, Any] | None = None,
    died: timedelta = timedelta(minutes=3),
    now: datetime = NOW,
    key: str | None = None,
    expires_at: datetime | None = None,
    idempotency_key: str | None = None,
    content_type: str | None = "application/json",
    stack: str = 'File "shop.py", line 7, in charge\n    bank.pay()\n',
    **head: Any,
) -> DeadLetter:
    """A letter that failed twice and died."""
    message_id = head.pop("message_id", f"m-{number}")
    dead_at = now - died
    history = ""
    for attempt in (1, 2):
        history = append(
            history,
            Attempt(
                number=attempt,
                at=dead_at - timedelta(seconds=10 * (2 - attempt)),
                trouble=Trouble.TRANSIENT,
                code="TIMEOUT",
                error_type=error_type,
                text=error_text,
                stack=stack,
                seconds=0.25,
                worker="w-1",
            ),
        )
    contents = body if body is not None else b'{"order": %d}' % number
    return DeadLetter(
        head=LetterHead(
            **{
                "id": letter_id(source, "", message_id),
                "source": source,
                "message_id": message_id,
                "state": state,
                "key": key,
                "business_key": idempotency_key,
                "reason": Reason.ATTEMPTS_EXHAUSTED,
                "reason_text": "failed 2 of 2 attempts",
                "trouble": Trouble.TRANSIENT,
                "code": "TIMEOUT",
                "error_type": error_type,
                "error_text": error_text,
                "fingerprint": f"f{crc32((source + error_type).encode()):08x}",
                "attempts": 2,
                "first_failed_at": dead_at - timedelta(seconds=10),
                "dead_at": dead_at,
                "consumer": "charge",
                "version": "1.8.0",
                "size": len(contents),
                **head,
            }
        ),
        message=Message(
            id=message_id,
            body=contents,
            sent_at=dead_at - timedelta(minutes=1),
            headers=as_headers(headers),
            content_type=content_type,
            key=key,
            expires_at=expires_at,
            idempotency_key=idempotency_key,
        ),
        history=history,
        first_received_at=dead_at - timedelta(seconds=11),
        frame="shop:charge",
    )


def make_letters(count: int, **different: Any) -> list[DeadLetter]:
    """Several of them, each a second older than the one before."""
    return [
        make_letter(number, **{"died": timedelta(minutes=3, seconds=number), **different})
        for number in range(1, count + 1)
    ]
