"""Samples of a group's letters: the values that they share, and those in which they differ."""

from collections.abc import Sequence
from typing import Final

from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.query.ast import All, Node, Not, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.variants import Variants, variants
from deadletter.ports import LetterStore

from .groups import get_group

SAMPLE: Final = 1_000  # the newest letters of the group
OTHERS: Final = 300  # the newest letters of other groups of its mailbox
MOST_BYTES: Final = 8_000_000  # of contents, for each of the two
LARGEST: Final = 256_000  # bytes of a message whose contents are read
_AT_ONCE: Final = 100


async def group_variants(store: LetterStore, name: str, *, sources: Sequence[str] = ()) -> Variants:
    """Return what the newest letters of a group share, and in what they differ."""
    group = await get_group(store, name, sources=sources)
    own = Term("group", Op.IS, (literal(group.fingerprint),))
    here = Term("source", Op.IS, (literal(group.source),))
    letters, opened = await _sample(store, own, SAMPLE)
    others, _ = await _sample(store, All((here, Not(own))), OTHERS)
    return variants(
        group.fingerprint, letters, others, total=sum(group.counts.values()), opened=opened
    )


async def _sample(store: LetterStore, query: Node, most: int) -> tuple[list[DeadLetter], int]:
    """Some letters, with contents as far as they may be read; how many have them."""
    heads = (await store.find(query, limit=most)).heads
    wanted: list[str] = []
    size = 0
    for head in heads:
        if head.size <= LARGEST and size + head.size <= MOST_BYTES:
            wanted.append(head.id)
            size += head.size
    read: dict[str, DeadLetter] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        some = await store.get(wanted[start : start + _AT_ONCE])
        read |= {letter.id: letter for letter in some}
    return [read.get(head.id) or _unopened(head) for head in heads], len(read)


def _unopened(head: LetterHead) -> DeadLetter:
    message = Message(id=head.message_id, body=b"", sent_at=head.first_failed_at)
    return DeadLetter(head=head, message=message)
