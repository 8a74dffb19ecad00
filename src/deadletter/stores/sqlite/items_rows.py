"""Items read from rows of the file, a batch at a time."""

import sqlite3
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.text import shown
from deadletter.queue_server.model import NO_LABELS, Item, item_id, unpack_labels
from deadletter.queue_server.plans import ItemFacts, StoredQueue

from .sql import Values, when

_SMALL: Final = 16_384  # bytes; larger payloads are read one by one

# Payloads are concatenated, as the bodies of messages are.
_READ: Final = f"""
SELECT count(*), min(seq), max(seq), json_group_array(json_array(
        seq, held, due, attempts, expires, enqueue_at, created_at,
        updated_at, source_id, hex(labels), length(payload))),
    CAST(group_concat(CASE WHEN length(payload) <= {_SMALL} THEN payload END, '')
        AS BLOB),
    max(length(payload)) > {_SMALL}
FROM ({{select}})
"""  # noqa: S608 -- made of constants
_LARGE: Final = f"""
SELECT seq, payload FROM ({{select}}) WHERE length(payload) > {_SMALL}
"""  # noqa: S608 -- made of constants
FACTS: Final = """
json_group_array(json_array(
    queue, seq, partition, state + held, attempts, expires, enqueue_at))
"""
"""The column that `read_facts` takes."""

_Row: TypeAlias = tuple[
    int,  # seq
    int,  # held
    int | None,  # due
    int,  # attempts
    int | None,  # expires
    int | None,  # enqueue_at
    int,  # created_at
    int,  # updated_at
    str | None,  # source_id
    str,  # labels in hex, empty without any
    int,  # size of the payload
]
_FactRow: TypeAlias = tuple[int, int, int, int, int, int | None, int | None]

_rows: Final = msgspec.json.Decoder(list[_Row]).decode
_facts: Final = msgspec.json.Decoder(list[_FactRow]).decode


class _Times(dict[int | None, Any]):
    """Times by their stored form; most items of a batch share them."""

    def __missing__(self, at: int | None) -> datetime | None:
        made = self[at] = _at(at)
        return made


class ReadItems(Struct, frozen=True):
    """Items as they were read; made into values on another thread."""

    count: int
    first: int  # number, if there are any items
    last: int
    rows: str  # JSON
    small: bytes  # the small payloads, one after another
    large: dict[int, bytes]  # the others, by seq
    max_attempts: int  # of their queue

    def items(self) -> list[Item]:
        """Return the items in order."""
        payloads = self.small
        start = 0
        known, texts = "", NO_LABELS  # mostly the same for a whole batch
        times = _Times()
        found: list[tuple[int, Item]] = []
        # One loop with few calls: it runs for every item.
        for (
            seq, held, due, attempts, expires, enqueue_at, created_at,
            updated_at, source_id, labels, size,
        ) in _rows(self.rows):  # fmt: skip
            if size <= _SMALL:
                payload = payloads[start : start + size]
                start += size
            else:
                payload = self.large[seq]
            if labels != known:
                known, texts = labels, unpack_labels(bytes.fromhex(labels))
            item = Item(
                id=item_id(seq),
                payload=payload,
                reference=texts[0],
                encoding=texts[1],
                kind=texts[2],
                attempts=attempts,
                max_attempts=self.max_attempts,
                source_id=source_id and shown(source_id),
                is_leased=held == 1,
                lease_deadline=times[due] if held else None,
                expire_deadline=times[expires],
                enqueue_at=times[enqueue_at],
                created_at=times[created_at],
                updated_at=times[updated_at],
            )
            found.append((seq, item))
        found.sort()  # seq is unique: items themselves are never compared
        return [item for _, item in found]


def read_items(
    connection: sqlite3.Connection, select: str, values: Values, queue: StoredQueue
) -> ReadItems:
    """Return the items of a queue by a select with the columns of the table."""
    answer = connection.execute(_READ.format(select=select), values).fetchone()
    count, first, last, rows, small, some_large = answer
    read_large = _LARGE.format(select=select)
    large = connection.execute(read_large, values) if some_large else ()
    max_attempts = queue.queue.max_attempts
    return ReadItems(count, first, last, rows, small or b"", dict(large), max_attempts)


def read_facts(packed: str) -> list[tuple[int, ItemFacts]]:
    """Return facts about items with the numbers of their queues."""
    return [
        (queue, ItemFacts(seq, partition, state, attempts, _at(expires), _at(at)))
        for queue, seq, partition, state, attempts, expires, at in _facts(packed)
    ]


def _at(time: int | None) -> datetime | None:
    return None if time is None else when(time)
