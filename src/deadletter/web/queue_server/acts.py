"""
What is done to queues and what lies in them, for the audit.

Administration is audited, call by call: who, which queue, how much, why. Producing,
leasing, completing and giving back is not; it is what queues are for.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.plain import plain_line

from .said import Said

HEADER: Final = b"dlq-reason"
LONGEST: Final = 4_000  # characters, as of reasons elsewhere


class Act(Struct, frozen=True):
    """A change that was made, and what whoever asked for it is answered."""

    queue: str
    detail: str
    answer: Said


def reason_of(headers: Mapping[bytes, str]) -> str:
    """
    Why somebody asks for it, in their words; nothing if they do not say.

    Headers are read as Latin-1, but what people and their shells send is UTF-8.
    """
    given = headers.get(HEADER, "").encode("latin-1").decode(errors="backslashreplace")
    if len(given) > LONGEST:
        raise ConfigError(
            f"invalid Dlq-Reason; it is longer than {LONGEST:,} characters"
        )
    return plain_line(given)
