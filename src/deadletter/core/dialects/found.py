"""
What lay in a dead place, and what its dialect says of the death.

Whoever drains a dead place hands over what it found as it was. Dialects are pure
functions from that to what they can tell; nothing in it is believed beyond that.
"""

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from ..decision import Reason
from ..failure import Trouble
from ..message import Headers

Names: TypeAlias = frozenset[str]


class Found(Struct, frozen=True, kw_only=True):
    """
    A message in a dead place, as it lay there.

    `raw` is whatever is needed beside body and headers to send it back exactly as
    it was; `receipt` whatever is needed to forget it. Nobody else looks at either.
    """

    kind: str  # of place: sqs, rabbitmq, kafka, nats, celery, dramatiq, rq, bullmq
    place: str  # the queue, topic or registry it lay in
    id: str  # what it is called there
    body: bytes
    headers: Headers = ()
    about: dict[str, str] = {}  # what the engine says of it
    source: str = ""  # where it came from, when its place says so
    at: datetime | None = None  # when it got there
    sent_at: datetime | None = None
    partition: str = ""
    position: str | None = None
    key: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    said: dict[str, str] = {}  # what else its place says of it, for people
    raw: bytes = b""
    receipt: Any = None

    def text(self, name: str) -> str:
        """The last header of that name as text; empty when there is none."""
        return self.value(name).decode("utf-8", "replace")

    def value(self, name: str) -> bytes:
        """The last header of that name; empty when there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return b""


class Told(Struct, frozen=True, kw_only=True):
    """What one dialect says of a death; what is empty it does not say."""

    dialect: str
    source: str = ""
    partition: str = ""
    position: str = ""
    message_id: str = ""
    reason: Reason | None = None
    reason_text: str = ""
    trouble: Trouble | None = None  # otherwise the classifier says
    error_type: str = ""
    error_text: str = ""
    stack: str = ""
    status: int = 0  # what an HTTP consumer answered
    attempts: int = 0  # 0: it does not say
    first_failed_at: datetime | None = None
    dead_at: datetime | None = None
    sent_at: datetime | None = None
    expires_at: datetime | None = None  # when its framework refuses to run it
    consumer: str = ""
    task: str = ""  # letters of one task and one error are one group
    delivery: str = ""  # tells this death from the next one, where no time does
    fields: dict[str, str] = {}  # what else people want to see, by its name
    retold: Names = frozenset()  # headers of the dialect that the fields repeat
    business_key: str = ""
    history: str = ""  # attempts that a worker of ours made, as it wrote them down
    is_told_whole: bool = False  # the history ends with the death itself
    drops: Names = frozenset()  # headers of the dialect: not the producer's
