"""
Search of a stream for the copies that replays sent, by any process.

Each copy carries its letter and generation in headers. The search reads messages one by
one, independently of the consumers of the stream: from the time of the first copy to the
end, up to a limit.
"""

from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from deadletter.intake.dialects import lineage_of
from deadletter.ports import CopyName

from .connection import Link
from .headers import read_block
from .streams import WORK_QUEUE, get_message, time_of

MAX_READ: Final = 20_000  # messages that one search reads
_MARGIN: Final = timedelta(seconds=120)  # for differing clocks and slow batches
_LIMITS: Final = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")


class CopyPosition(Struct, frozen=True):
    """Position of a copy: its stream, and its sequence number there."""

    stream: str
    number: int = 0  # 0: the copy has left the stream, so it was processed
    signature: str = ""


class Search(Struct, frozen=True):
    """Copies in a stream, and what their absence means."""

    found: dict[CopyName, CopyPosition] = {}
    gone: CopyPosition | None = None  # of absent copies, if absent means processed
    is_consumed: bool = False  # messages leave the stream once they are processed
    doubt: str = ""  # empty: copies that were not found never arrived


async def search(link: Link, info: dict[str, Any], subject: str, since: datetime) -> Search:
    """Find the copies that a stream received on a subject since a time."""
    config, state = info["config"], info["state"]
    name = str(config["name"])
    is_consumed = config["retention"] != "limits"
    number = start = await _first_since(link, info, subject, since - _MARGIN)
    found: dict[CopyName, CopyPosition] = {}
    doubt = ""
    if not is_consumed and not _is_complete(state, start):
        doubt = f"the stream {name} has removed messages of that time"
    read = 0
    while number <= state["last_seq"]:
        message = await get_message(link, name, seq=number, next_by_subj=subject)
        if message is None:
            break
        read += 1
        if read > MAX_READ:
            doubt = f"the stream {name} has received more than {MAX_READ:,} messages since"
            break
        headers, _ = read_block(b64decode(message.get("hdrs", "")))
        lineage = lineage_of(headers)
        if lineage is not None:
            position = CopyPosition(name, message["seq"], lineage.signature)
            found[lineage.letter_id, lineage.generation] = position
        number = message["seq"] + 1
    means_processed = not doubt and _is_left_when_processed(config)
    gone = CopyPosition(name) if means_processed else None
    return Search(found, gone, is_consumed, doubt)


def _is_left_when_processed(config: dict[str, Any]) -> bool:
    """Tell whether messages leave a stream only when processed, or by hand."""
    has_limits = any(config.get(limit, 0) > 0 for limit in _LIMITS)
    return config["retention"] == WORK_QUEUE and not has_limits


def _is_complete(state: dict[str, Any], start: int) -> bool:
    """Tell whether a stream still has all messages from a number on."""
    if state.get("num_deleted"):
        return False
    first = int(state["first_seq"])
    return first <= 1 or start > first


async def _first_since(link: Link, info: dict[str, Any], subject: str, since: datetime) -> int:
    """Return the number of the first message on a subject at or after a time."""
    name = str(info["config"]["name"])
    low, high = info["state"]["first_seq"], info["state"]["last_seq"] + 1
    while low < high:
        middle = (low + high) // 2
        message = await get_message(link, name, seq=middle, next_by_subj=subject)
        if message is None or time_of(message["time"]) >= since:
            high = middle
        else:
            low = message["seq"] + 1
    return int(low)
