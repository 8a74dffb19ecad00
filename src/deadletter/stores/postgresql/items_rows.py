"""Items as columns, and items read from rows."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from deadletter.core.text import shown
from deadletter.queue_server.model import (
    NO_LABELS,
    Item,
    NewItem,
    item_id,
    pack_labels,
    unpack_labels,
)
from deadletter.queue_server.plans import ItemFacts, ItemState

ITEM: Final = """
m.seq, m.state, m.due, m.attempts, m.max_attempts, m.expires, m.enqueue_at,
m.created_at, m.updated_at, m.source_id, m.labels, m.payload
"""
"""The columns that `read_items` takes, in order."""

FACTS: Final = """
m.queue, m.seq, m.partition, m.state, m.attempts, m.max_attempts, m.expires,
m.enqueue_at
"""
"""The columns that `item_facts` takes, in order."""

_LEASED: Final = int(ItemState.LEASED)


class ReadItems(Struct, frozen=True):
    """Items as they were read; made into values after the transaction."""

    rows: Sequence[Any]

    @property
    def count(self) -> int:
        """Return the number of items."""
        return len(self.rows)

    def items(self) -> list[Item]:
        """Return the items in order."""
        return read_items(self.rows)


def read_items(rows: Iterable[Any]) -> list[Item]:
    """Return the items in order."""
    known, texts = None, NO_LABELS  # mostly the same for a whole batch
    found = []
    # One loop with few calls: it runs for every item.
    for (
        seq, state, due, attempts, max_attempts, expires, enqueue_at, created_at,
        updated_at, source_id, labels, payload,
    ) in rows:  # fmt: skip
        if labels != known:
            known, texts = labels, unpack_labels(labels)
        leased = state == _LEASED
        found.append(
            Item(
                id=item_id(seq),
                payload=payload,
                reference=texts[0],
                encoding=texts[1],
                kind=texts[2],
                attempts=attempts,
                max_attempts=max_attempts,
                source_id=source_id and shown(source_id),
                is_leased=leased,
                lease_deadline=due if leased else None,
                expire_deadline=expires,
                enqueue_at=enqueue_at,
                created_at=created_at,
                updated_at=updated_at,
            )
        )
    found.sort(key=lambda item: item.id)
    return found


def item_facts(row: Sequence[Any]) -> ItemFacts:
    """Return the facts of an item."""
    return ItemFacts(*row[1:8])


def columns_of(batch: Sequence[NewItem]) -> tuple[Sequence[Any], ...]:
    """Return times, labels and payloads; a column without any value is empty."""
    times = [item.enqueue_at for item in batch]
    labels = [pack_labels(item.reference, item.encoding, item.kind) for item in batch]
    return (
        times if any(times) else (),
        labels if any(labels) else (),
        [item.payload for item in batch],
    )
