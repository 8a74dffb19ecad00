"""Items as columns, and rows as items."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from deadletter.core.escaping import shown
from deadletter.core.item_labels import NO_LABELS, pack_labels, unpack_labels
from deadletter.core.item_life import item_id
from deadletter.core.item_plans import Fact, ItemState
from deadletter.core.items import Item, NewItem

ITEM: Final = """
m.seq, m.state, m.due, m.attempts, m.max_attempts, m.expires, m.enqueue_at,
m.created_at, m.updated_at, m.source_id, m.labels, m.payload
"""
"""The columns `items` reads, in its order, after the partition."""

FACTS: Final = """
m.queue, m.seq, m.partition, m.state, m.attempts, m.max_attempts, m.expires,
m.enqueue_at
"""
"""The columns `fact` reads, in its order."""

_LEASED: Final = int(ItemState.LEASED)


def items(rows: Iterable[Any]) -> list[Item]:
    """The items, in order."""
    known, texts = None, NO_LABELS  # mostly the same for a whole batch
    found = []
    # One loop with nothing called that can be helped: it runs for every item.
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


def fact(row: Sequence[Any]) -> Fact:
    """What matters of an item."""
    return Fact(*row[1:8])


def columns_of(batch: Sequence[NewItem]) -> tuple[Sequence[Any], ...]:
    """Times, labels and payloads; a column of nothing but None is empty."""
    times = [item.enqueue_at for item in batch]
    labels = [pack_labels(item.reference, item.encoding, item.kind) for item in batch]
    return (
        times if any(times) else (),
        labels if any(labels) else (),
        [item.payload for item in batch],
    )
