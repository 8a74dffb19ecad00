"""
Messages as rows, and rows as deliveries.

A batch is read back as ONE row holding a JSON array: every further row would be
one more step of SQLite, each of which lets go of the interpreter and, beside a
busy thread, waits milliseconds to get it back.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.escaping import shown, stored
from deadletter.core.message import Delivery, Message
from deadletter.core.packing import NOTHING_EXTRA, pack_extra, read_extra

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

MessageRow: TypeAlias = tuple[str, bytes, bytes | None, int, int | None]
"""id, body, extra, sent_at, expires_at"""

_SMALL: Final = 16_384  # bytes; larger bodies are read one by one

# Bodies and stories are laid end to end, not put into the JSON: there they would
# be searched for characters to escape, which costs more than all the rest.
_CLAIMED: Final = f"""
SELECT json_group_array(json_array(
        due, seq, id, length(body), hex(extra), sent_at, expires_at, attempts, spared,
        suspect, first_at, length(CAST(history AS BLOB)), mailbox)),
    CAST(group_concat(CASE WHEN length(body) <= {_SMALL} THEN body END, '') AS BLOB),
    CAST(group_concat(history, '') AS BLOB),
    max(length(body)) > {_SMALL}
FROM messages WHERE leased = ? AND token = ?
"""  # noqa: S608 -- made of constants
_LARGE: Final = f"""
SELECT seq, body FROM messages
WHERE leased = ? AND token = ? AND length(body) > {_SMALL}
"""  # noqa: S608 -- made of constants

_Row: TypeAlias = tuple[
    int,  # due
    int,  # seq
    str,  # id
    int,  # size of the body
    str,  # extra, empty when there is none
    int,  # sent_at
    int | None,  # expires_at
    int,  # attempts
    int,  # spared
    int,  # suspect
    int | None,  # first_at
    int,  # size of the history, in bytes
    int,  # mailbox
]

_rows: Final = msgspec.json.Decoder(list[_Row]).decode


class Claimed(Struct, frozen=True):
    """What one claim got, as it was read; made into deliveries on another thread."""

    token: int
    rows: str  # JSON
    small: bytes  # the small bodies, one after another
    large: dict[int, bytes]  # the others, by seq
    stories: bytes  # all of them, one after another

    def deliveries(self, mailboxes: Mapping[int, str]) -> list[Delivery]:
        """The deliveries, in order."""
        bodies, stories = self.small, self.stories
        start = told = 0
        # Mostly the same for a whole batch, and each costs more than a look.
        known_first, first = None, None
        known_sent, sent = None, EPOCH
        known_extra, rare, damage = "", NOTHING_EXTRA, ""
        found = []
        # One loop with nothing called that can be helped: it runs for every message.
        for (
            due, seq, id_, size, extra, sent_at, expires_at, attempts, spared,
            suspect, first_at, story, mailbox,
        ) in _rows(self.rows):  # fmt: skip
            if size <= _SMALL:
                body = bodies[start : start + size]
                start += size
            else:
                body = self.large[seq]
            if first_at != known_first:
                known_first = first_at
                first = None if first_at is None else when(first_at)
            if sent_at != known_sent:
                known_sent, sent = sent_at, when(sent_at)
            if extra != known_extra:
                known_extra = extra
                rare, damage = read_extra(bytes.fromhex(extra))
            message = Message(
                id=id_ if id_.isascii() else shown(id_),
                body=body,
                sent_at=sent,
                expires_at=None if expires_at is None else when(expires_at),
                headers=rare.headers,
                content_type=rare.content_type,
                key=rare.key,
                reply_to=rare.reply_to,
                idempotency_key=rare.idempotency_key,
                traceparent=rare.traceparent,
                tracestate=rare.tracestate,
                lineage=rare.lineage,
            )
            delivery = Delivery(
                message=message,
                mailbox=mailboxes[mailbox],
                attempt=attempts,
                spared=spared,
                suspect=suspect == 1,
                first_received_at=first,
                history=stories[told : told + story].decode() if story else "",
                receipt=(seq, self.token),
                unreadable=damage,
            )
            told += story
            found.append((due, seq, delivery))
        found.sort()  # seq is unique: deliveries themselves are never compared
        return [delivery for _, _, delivery in found]


def micros(at: datetime) -> int:
    """A time as it is stored, exactly."""
    return (at - EPOCH) // _MICROSECOND


def when(at: int) -> datetime:
    """The time that was stored."""
    return EPOCH + timedelta(0, 0, at)


def seconds(duration: float) -> int:
    """A duration as it is stored."""
    return round(duration * 1_000_000)


def rows_of(messages: Sequence[Message]) -> list[MessageRow]:
    """Messages as they are stored."""
    known_sent, sent = None, 0
    rows: list[MessageRow] = []
    for message in messages:
        if message.sent_at is not known_sent:  # mostly one time for the whole batch
            known_sent, sent = message.sent_at, micros(message.sent_at)
        expires_at = message.expires_at
        rows.append(
            (
                stored(message.id),
                message.body,
                pack_extra(message),
                sent,
                None if expires_at is None else micros(expires_at),
            )
        )
    return rows


def read_claimed(connection: sqlite3.Connection, leased: int, token: int) -> Claimed:
    """What was claimed under this token until then."""
    claim = (leased, token)
    rows, small, stories, some_large = connection.execute(_CLAIMED, claim).fetchone()
    large = connection.execute(_LARGE, claim) if some_large else ()
    return Claimed(token, rows, small or b"", dict(large), stories or b"")
