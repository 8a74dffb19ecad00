"""
NATS: the advisory by which a server says that a consumer has given up.

Whoever drains fetches the message that the advisory is about, and hands it over
with what the advisory says.
"""

from typing import Final

import msgspec
from msgspec import Struct

from ..decision import Reason
from .found import Found, Told
from .values import count, moment

KINDS: Final = {
    "io.nats.jetstream.advisory.v1.max_deliver": Reason.ATTEMPTS_EXHAUSTED,
    "io.nats.jetstream.advisory.v1.terminated": Reason.REJECTED,
}


class Advisory(Struct, frozen=True):
    """What a server says of a message that a consumer is done with."""

    type: str
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int = 0
    timestamp: str = ""
    reason: str = ""


_decode: Final = msgspec.json.Decoder(Advisory).decode


def advisory(data: bytes) -> Advisory | None:
    """The advisory that these bytes are; None when they are none that we know."""
    try:
        read = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return read if read.type in KINDS and read.stream_seq > 0 else None


def given_up(found: Found) -> Told | None:
    """What the advisory said; the source is the subject, the identity its number."""
    about = found.about
    if about.get("type") not in KINDS:
        return None
    who = f"the consumer {about.get('consumer')} of the stream {about.get('stream')}"
    tries = count(about.get("deliveries", ""))
    why = about.get("reason") or f"gave up after {tries} deliveries"
    return Told(
        dialect="nats-advisory",
        source=found.source,
        position=f"{about.get('stream')}/{about.get('stream_seq')}",
        message_id=f"{about.get('stream')}/{about.get('stream_seq')}",
        reason=KINDS[about["type"]],
        reason_text=f"{who}: {why}",
        attempts=tries,
        dead_at=moment(about.get("timestamp", "")),
        consumer=about.get("consumer", ""),
        fields={
            "stream": about.get("stream", ""),
            "sequence": about.get("stream_seq", ""),
            "consumer": about.get("consumer", ""),
            "deliveries": about.get("deliveries", ""),
            "reason": about.get("reason", ""),
        },
    )
