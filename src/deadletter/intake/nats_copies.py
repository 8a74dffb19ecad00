"""
Copies of ours in the streams of others: their numbers, whoever sent them.

Each carries its letter and generation in headers. A stream is asked for its messages
one by one, which works beside whatever consumers it has: from the time of the first
copy on to its end, and no further than a stated number of messages.
"""

from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from nats.js import JetStreamContext, api
from nats.js import errors as jetstream

from deadletter.core.dialects import lineage_of
from deadletter.ports import CopyName

from .nats_headers import read_block

MOST_READ: Final = 20_000  # messages that one search reads
_MARGIN: Final = timedelta(seconds=120)  # that clocks may differ, or a batch may take


class Spot(Struct, frozen=True):
    """The place of a copy: its stream, and its number there."""

    stream: str
    number: int = 0  # 0: it is gone, and that means that it was handled
    signature: str = ""


class Search(Struct, frozen=True):
    """The copies that a stream has, and what it can tell of others."""

    found: dict[CopyName, Spot] = {}
    gone: Spot | None = None  # of copies that it had, where it tells that
    is_consumed: bool = False  # messages leave the stream once they were handled
    doubt: str = ""  # empty: those that were not found never came


async def search(
    js: JetStreamContext, info: api.StreamInfo, subject: str, since: datetime
) -> Search:
    """Find the copies that a stream has got on a subject since a time."""
    config, state = info.config, info.state
    name = config.name or ""
    is_consumed = config.retention != api.RetentionPolicy.LIMITS
    start = await _start(js, info, subject, since - _MARGIN)
    found: dict[CopyName, Spot] = {}
    doubt = ""
    if not is_consumed and not _is_whole(info.state, start):
        doubt = f"the stream {name} has removed messages of that time"
    number, read = start, 0
    while number <= state.last_seq:
        message = await _next(js, name, subject, number)
        if message is None:
            break
        read += 1
        if read > MOST_READ:
            doubt = f"the stream {name} has got more than {MOST_READ:,} messages since"
            break
        at = message.seq or number
        headers, _ = read_block(b64decode(message.hdrs or b""))
        lineage = lineage_of(headers)
        if lineage is not None:
            spot = Spot(name, at, lineage.signature)
            found[lineage.letter_id, lineage.generation] = spot
        number = at + 1
    tells = not doubt and _is_left_when_handled(config)
    return Search(found, Spot(name) if tells else None, is_consumed, doubt)


def _is_left_when_handled(config: api.StreamConfig) -> bool:
    """Whether messages leave a stream only when they were handled, or by hand."""
    most = (config.max_age, config.max_msgs, config.max_bytes)
    has_limits = any((one or 0) > 0 for one in (*most, config.max_msgs_per_subject))
    return config.retention == api.RetentionPolicy.WORK_QUEUE and not has_limits


def _is_whole(state: api.StreamState, start: int) -> bool:
    """Whether nothing is missing of what a stream has got from a number on."""
    if state.num_deleted:
        return False
    return state.first_seq <= 1 or start > state.first_seq


async def _start(
    js: JetStreamContext, info: api.StreamInfo, subject: str, since: datetime
) -> int:
    """Return the number of the first message on a subject that is not older."""
    low, high = info.state.first_seq, info.state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        message = await _next(js, info.config.name or "", subject, middle)
        if message is None or _is_since(message, since):
            high = middle
        else:
            low = (message.seq or middle) + 1
    return low


def _is_since(message: api.RawStreamMsg, since: datetime) -> bool:
    time = message.time
    if time is None:
        return True
    return (time if time.tzinfo else time.replace(tzinfo=UTC)) >= since


async def _next(
    js: JetStreamContext, stream: str, subject: str, number: int
) -> api.RawStreamMsg | None:
    try:
        return await js.get_msg(stream, number, subject, next=True)
    except jetstream.NotFoundError:
        return None
