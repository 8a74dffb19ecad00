"""What tests of dialects share: things found, and the letters they become."""

from datetime import UTC, datetime
from typing import Any

from deadletter.core.letter import DeadLetter
from deadletter.core.signing import Keys
from deadletter.intake.dialects import Found, Trusted, letter_of, origin_of, unmarked

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
THEN = datetime(2026, 5, 1, tzinfo=UTC)
KEYS = Keys(b"the key of this office")
ANYBODY = Trusted(("*",))


def found(**more: Any) -> Found:
    headers = more.pop("headers", {})
    pairs = headers.items() if isinstance(headers, dict) else headers
    as_bytes = tuple((n, v.encode() if isinstance(v, str) else v) for n, v in pairs)
    basics: dict[str, Any] = {
        "kind": "rabbitmq",
        "place": "orders.dead",
        "id": "m-1",
        "body": b"body",
    }
    return Found(**{**basics, "headers": as_bytes, **more})


def read(**more: Any) -> DeadLetter:
    trusted = more.pop("trusted", ANYBODY)
    return letter_of(found(**more), NOW, KEYS, trusted)


def theirs(letter: DeadLetter) -> dict[str, bytes]:
    return dict(unmarked(letter.message).headers)


def said(letter: DeadLetter) -> dict[str, str]:
    origin = origin_of(letter.message)
    assert origin is not None
    return origin.said


def kept(letter: DeadLetter) -> dict[str, str]:
    """What is shown, and the headers that it repeats."""
    origin = origin_of(letter.message)
    assert origin is not None
    return {**origin.headers, **origin.said}


def dialect(letter: DeadLetter) -> str:
    origin = origin_of(letter.message)
    assert origin is not None
    return origin.dialect
