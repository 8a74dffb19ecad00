"""
Another engine's dead-letter topic becomes letters: `python -m pipeline.take_in NODE`

Piping such a topic back with Kafka's own tools would feed envelopes to a node that
expects streams. Taken in, each is a letter like ours: searched, counted, and replayed
as the inner stream alone. The topic stays as it is, and may be taken in again.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC
from itertools import islice
from typing import Final

from confluent_kafka import Message
from google.protobuf.message import DecodeError
from msgspec import Struct

from deadletter import ConfigError, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.ports import LetterStore
from deadletter.profiles import pipeline as projection

from .engine import Pipeline, opened
from .graph import Node
from .pipestream_pb2 import DlqMessage
from .reading import BATCH, place_of, records
from .settings import Settings

_TROUBLES: Final = {
    "MAX_HOPS_EXCEEDED": Trouble.LOOP,
    "MALFORMED": Trouble.MALFORMED,
    "VALIDATION_ERROR": Trouble.MALFORMED,
    "INVALID_ARGUMENT": Trouble.PERMANENT,
    "NOT_FOUND": Trouble.PERMANENT,
}


class TakenIn(Struct, frozen=True):
    """What became of the records of a topic."""

    new: int = 0
    known: int = 0  # letters that are in the office already
    unreadable: int = 0  # no envelopes; they stay in the topic


async def take_in(pipeline: Pipeline, node_id: str) -> TakenIn:
    """Take in what the dead-letter topic of a node holds now."""
    node = pipeline.graph.nodes.get(node_id)
    if node is None:
        raise ConfigError(f"The graph has no node {node_id}.")
    letters = await pipeline.app.letters()
    found = records(pipeline.app.url, node.patience.topic)
    total = TakenIn()
    while some := list(islice(found, BATCH)):
        taken = await _kept(letters, node, some)
        total = TakenIn(
            total.new + taken.new, total.known + taken.known, total.unreadable + taken.unreadable
        )
    return total


def letter_of(node: Node, message: DlqMessage, record_id: str) -> DeadLetter:
    """
    The letter of an envelope that was found as the record `record_id`.

    It goes back to where the graph says that its node reads, whatever it says itself.
    """
    body = message.unreadable or message.stream.SerializeToString()
    told = projection.DlqMessage(
        stream=body,
        error_type=message.error_type,
        error_message=message.error_message,
        failed_at=message.failed_at.ToDatetime(UTC),
        retry_count=message.retry_count,
        failed_node_id=node.id,
        original_topic=node.topic,
        original_offset=message.original_offset,
    )
    trouble = _TROUBLES.get(message.error_type, Trouble.TRANSIENT)
    return projection.import_(told, message_id=record_id, trouble=trouble)


async def _kept(letters: LetterStore, node: Node, some: Sequence[Message]) -> TakenIn:
    found: dict[str, DeadLetter] = {}  # by the id of the letter that it would be
    unreadable = 0
    for record in some:
        try:
            message = DlqMessage.FromString(record.value() or b"")
        except DecodeError:
            unreadable += 1
            continue
        partition, offset = place_of(record)
        letter = letter_of(node, message, f"{record.topic()}/{partition}/{offset}")
        found[message.letter_id or letter.id] = letter
    known = {letter.id for letter in await letters.get(list(found))}
    new = [letter for name, letter in found.items() if name not in known]
    await letters.keep(new)
    return TakenIn(len(new), len(some) - unreadable - len(new), unreadable)


async def main(node_id: str) -> None:
    """Take in, and say what came of it."""
    async with opened(Settings.read(os.environ)) as pipeline:
        taken = await take_in(pipeline, node_id)
    print(f"{taken.new} new, {taken.known} known, {taken.unreadable} unreadable")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
