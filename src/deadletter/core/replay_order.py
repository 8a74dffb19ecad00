"""
The order in which letters are sent back: oldest first, by when each message was sent.

Messages sent at the same moment follow their positions on the broker, then their ids.
"""

import re
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from .message import Message

LONGEST: Final = 200  # characters of a position that count
_DIGITS: Final = 20  # of any number in a position
_number: Final = partial(
    re.compile(r"[0-9]+").sub, lambda found: found[0].zfill(_DIGITS)
)

SendOrder: TypeAlias = tuple[datetime, str, str]


def sortable_position(position: str | None) -> str | None:
    """Return a position so that texts compare as the numbers in them do."""
    if position is None:
        return None
    plain = position[:LONGEST].encode("ascii", "backslashreplace").decode()
    return _number(plain.replace("\0", ""))  # which PostgreSQL keeps in no text


def send_order(message: Message, position: str | None) -> SendOrder:
    """Return what letters are sorted by."""
    return message.sent_at, sortable_position(position) or "", message.id
