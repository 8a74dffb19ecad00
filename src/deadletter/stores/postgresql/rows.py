"""Messages as columns, and rows as deliveries."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias
from zlib import crc32

from deadletter.core.ids import CORRUPT
from deadletter.core.message import Delivery, Message
from deadletter.core.packing import NOTHING_EXTRA, pack_extra, read_extra
from deadletter.core.seals import Marks
from deadletter.core.text import MARK, shown, stored

CLAIMED: Final = """
m.due, m.seq, m.token, m.mailbox, m.id, m.body, m.extra, m.sent_at, m.expires_at,
m.attempts, m.spared, m.suspect, m.first_at, m.history, m.crc
"""
"""The columns `deliveries` reads, in its order."""

Columns: TypeAlias = tuple[
    Sequence[bytes],  # id
    Sequence[bytes],  # body
    Sequence[bytes | None],  # extra
    Sequence[datetime],  # sent_at
    Sequence[datetime | None],  # expires_at
    Sequence[int],  # checksum
    Sequence[int],  # mark
]


def columns_of(messages: Sequence[Message], marks: Marks) -> Columns:
    """Messages as they are stored; a column of nothing but None is empty."""
    extras = [pack_extra(message) for message in messages]
    expiries = [message.expires_at for message in messages]
    ids = [octets(message.id) for message in messages]
    return (
        ids,
        [message.body for message in messages],
        extras if any(extras) else [],
        [message.sent_at for message in messages],
        expiries if any(expiries) else [],
        [
            crc32(extra or b"", crc32(message.body, crc32(id_)))
            for id_, message, extra in zip(ids, messages, extras, strict=True)
        ],
        [marks.message(message.id, message.body) for message in messages],
    )


def deliveries(rows: Iterable[Any], mailboxes: Mapping[int, str]) -> list[Delivery]:
    """The deliveries, in order."""
    found = []
    # Mostly the same for a whole batch.
    known, rare, damage = None, NOTHING_EXTRA, ""
    # One loop with nothing called that can be helped: it runs for every message.
    for (
        due, seq, token, mailbox, id_, body, extra, sent_at, expires_at, attempts,
        spared, suspect, first_at, history, crc,
    ) in rows:  # fmt: skip
        if extra != known:
            known, (rare, damage) = extra, read_extra(extra)
        is_whole = crc is None or crc32(extra or b"", crc32(body, crc32(id_))) == crc
        message = Message(
            id=id_.decode() if id_.isascii() else _text(id_),
            body=body,
            sent_at=sent_at,
            expires_at=expires_at,
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
            suspect=suspect,
            first_received_at=first_at,
            history=_text(history) if history else "",
            receipt=(seq, token),
            unreadable=damage if is_whole else CORRUPT,
            corrupt=not is_whole,
        )
        found.append((due, seq, delivery))
    found.sort()  # seq is unique: deliveries themselves are never compared
    return [delivery for _, _, delivery in found]


def _text(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # changed on its way
        return stored.decode("utf-8", "replace")


def octets(text: str) -> bytes:
    """Any text as bytes, also text that is none."""
    return text.encode("utf-8", "surrogatepass")


# Rows whose texts may hold what PostgreSQL cannot, see `core.escaping`.


def storable(row: Sequence[Any]) -> Sequence[Any]:
    """A row with all its texts as they can be stored."""
    texts = "".join([value for value in row if isinstance(value, str)])
    if texts.isascii() and "\0" not in texts:  # as good as always
        return row
    return [stored(value) if isinstance(value, str) else value for value in row]


def legible(row: Sequence[Any]) -> Sequence[Any]:
    """A row with all its texts as they were."""
    if MARK in "".join([value for value in row if isinstance(value, str)]):
        return [shown(value) if isinstance(value, str) else value for value in row]
    return row
