"""
Dead-letter topics of pipeline nodes, read when somebody asks for a replay.

Any engine may have written to them. Records become letters as in a drain: what the office knows
already stays one letter, and a record is read once.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import structs

from deadletter.core.errors import ConfigError, Malformed, NotFound
from deadletter.core.events import Observer
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.intake.dialects import MALFORMED, Found
from deadletter.ports import Clock, Dice, Drain, Foreign, KeyRing, LetterStore
from deadletter.profiles.pipeline import NodeTopics, input_topic, node_of, open_envelope, topics_in
from deadletter.runtime.drain_loop import BATCH, Intake

from .foreign import opened_foreign, server_label

_SCHEME: Final = "kafka"


class NodeDrains:
    """The dead-letter topics of all nodes on the Kafka of one URL; none on other engines."""

    def __init__(
        self,
        url: str,
        *,
        letters: LetterStore,
        ring: KeyRing,
        graph: str | None,
        clock: Clock,
        dice: Dice,
        observe: Observer,
    ) -> None:
        self._url = url
        self._letters = letters
        self._ring = ring
        self._graph = graph
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._turn = asyncio.Lock()  # a topic has one reader of our group at a time

    async def take_in(self, node_id: str, by: By, *, sees: Callable[[str], bool]) -> int:
        """
        Store the records in a node's topic as letters; return how many are new.

        Only topics of nodes whose input topic the caller `sees` are read. Records that arrive
        meanwhile wait for the next time.
        """
        if urlsplit(self._url).scheme != _SCHEME:
            return 0
        async with (
            self._turn,
            opened_foreign(_without_group(self._url), clock=self._clock) as kafka,
        ):
            topics = await self._topics(kafka, node_id)
            return sum([await self._read(kafka, one, by) for one in topics if sees(one.input)])

    async def _topics(self, kafka: Foreign, node_id: str) -> Sequence[NodeTopics]:
        if self._graph is not None:
            named = (await asyncio.to_thread(_read_graph, self._graph)).get(node_id)
            if named is not None:
                return [named]
        found = [NodeTopics(input_topic(dead), dead) for dead in await kafka.places()]
        return [one for one in found if one.input and node_of(one.input) == node_id]

    async def _read(self, kafka: Foreign, topics: NodeTopics, by: By) -> int:
        drain = _NodeDrain(kafka.drain(topics.dead), topics.input)
        intake = Intake(
            drain=drain,
            letters=self._letters,
            clock=self._clock,
            dice=self._dice,
            observe=self._observe,
            ring=self._ring,
            server=server_label(self._url),
        )
        new = seen = 0
        try:
            end = await drain.depth()
            while seen < end and (taken := await intake.once(min(BATCH, end - seen))):
                seen += len(taken)
                new += sum(one.kept is not None and one.kept.is_new for one in taken)
        except NotFound:  # nothing was ever published there
            return 0
        finally:
            await intake.end()
        if new:
            await self._letters.record("drain", topics.dead, by, many(new, "letter"))
        return new


class _NodeDrain:
    """A drain whose records belong to a node, whatever their envelopes claim."""

    def __init__(self, drain: Drain, source: str) -> None:
        self.place = drain.place
        self._drain = drain
        self._source = source

    async def depth(self) -> int:
        return await self._drain.depth()

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        found = await self._drain.take(limit, wait=wait)
        return [structs.replace(one, source=self._source, about=_about(one.body)) for one in found]

    async def forget(self, found: Sequence[Found]) -> None:
        await self._drain.forget(found)

    async def hand_back(self, found: Sequence[Found]) -> None:
        await self._drain.hand_back(found)

    async def close(self) -> None:
        await self._drain.close()


def _about(body: bytes) -> dict[str, str]:
    try:
        open_envelope(body)
    except Malformed as error:
        return {MALFORMED: f"not a DlqMessage: {error}"}
    return {}


def _read_graph(path: str) -> dict[str, NodeTopics]:
    try:
        return topics_in(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"serve.graph names {path}, which cannot be read: {error}") from error


def _without_group(url: str) -> str:
    """Return the URL without the consumer group of its workers: a drain has one of its own."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "group"]
    return urlunsplit(parts._replace(query=urlencode(query)))
