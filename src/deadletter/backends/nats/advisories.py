"""
What other people's consumers have given up on.

A consumer with max_deliver lets a message lie in its stream when that many deliveries
have failed, and the server says so once, to whoever listens. A stream of ours listens
always, so that nothing is missed while we are not running; the message is fetched by
its number, before the limits of its stream remove it.
"""

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from deadletter.core.errors import ConfigError
from deadletter.core.message import Delivery
from deadletter.nats_login import OURS

from .errors import (
    MESSAGE_NOT_FOUND,
    NAME_IN_USE,
    STREAM_NOT_FOUND,
    SUBJECTS_OVERLAP,
    Declined,
)
from .link import Link, Sending
from .names import DURABLE, Names, Place
from .packing import unpacked
from .pulling import Pull
from .streams import make_consumer

SUBJECT: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"
_LEASE: Final = 60.0  # seconds to keep what was taken
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Advisory(Struct, frozen=True):
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int
    timestamp: datetime | None = None


class Exhausted(Struct, frozen=True):
    """A message somebody's consumer has given up on."""

    delivery: Delivery  # mailbox is its subject; position is stream/number
    stream: str
    consumer: str
    reason: str
    gone: bool  # limits have removed it: there is nothing but its number
    receipt: str


_decode: Final = msgspec.json.Decoder(_Advisory).decode


class Advisories:
    """Takes what consumers have given up on, and forgets it when told."""

    def __init__(self, link: Link, names: Names, *, replicas: int) -> None:
        self._link = link
        self._place = Place(SUBJECT, names.advisories, DURABLE, "", own=True)
        self._replicas = replicas
        self._pull: Pull | None = None

    async def listen(self) -> None:
        """Have a stream that catches what is said from now on."""
        config = {
            "name": self._place.stream,
            "description": f"{OURS}messages that consumers have given up on",
            "subjects": [SUBJECT],
            "retention": "workqueue",
            "storage": "file",
            "num_replicas": self._replicas,
        }
        try:
            await self._link.ask(f"STREAM.CREATE.{self._place.stream}", config)
        except Declined as error:
            if error.code == SUBJECTS_OVERLAP:
                raise ConfigError(
                    f"another stream catches {SUBJECT} already, maybe ours of another"
                    " ?prefix=: use that one, or delete it"
                ) from error
            if error.code != NAME_IN_USE:  # there already, edited by somebody
                raise
        await make_consumer(self._link, self._place, _LEASE)

    async def take(self, limit: int, wait: float) -> list[Exhausted]:
        """
        Up to `limit` of them, waiting up to `wait` seconds for the first.

        What is not forgotten within a minute comes again.
        """
        if self._pull is None:
            await self.listen()
            self._pull = Pull(self._link, self._place)
        pull = self._pull
        try:
            found = await pull.take(limit, wait)
        except BaseException:
            self._pull = None
            pull.give_up(self._give_back)
            raise
        return list(await asyncio.gather(*(self._read(msg) for msg in found)))

    async def forget(
        self, exhausted: Sequence[Exhausted], *, remove: bool = False
    ) -> None:
        """They are kept elsewhere by now; `remove` takes them out of their stream."""
        if remove:
            for one in exhausted:
                if not one.gone:
                    await self._remove(one)
        await self._link.in_turn([Sending(one.receipt, b"+ACK") for one in exhausted])

    def _give_back(self, found: list[Msg]) -> None:
        self._link.start(
            self._link.in_turn([Sending(msg.reply, b"-NAK") for msg in found])
        )

    async def _read(self, msg: Msg) -> Exhausted:
        said = _decode(msg.data)
        position = f"{said.stream}/{said.stream_seq}"
        found = await self._message(said)
        gone = found is None
        raw = found or {"subject": said.stream}
        stored = _nanos(raw.get("time"), said.timestamp)
        body = b64decode(raw.get("data", ""))
        message, _ = unpacked(body, _headers(raw.get("hdrs", "")), position, stored)
        reason = (
            f"the consumer {said.consumer} of the stream {said.stream} gave up after"
            f" {said.deliveries} deliveries"
        )
        if gone:
            reason += "; limits of the stream had removed it before it could be kept"
        delivery = Delivery(
            message=message,
            mailbox=str(raw["subject"]),
            attempt=said.deliveries,
            position=position,
        )
        return Exhausted(
            delivery, said.stream, said.consumer, reason, gone, receipt=msg.reply
        )

    async def _message(self, said: _Advisory) -> dict[str, Any] | None:
        try:
            answer = await self._link.ask(
                f"STREAM.MSG.GET.{said.stream}", {"seq": said.stream_seq}
            )
        except Declined as error:
            if error.code in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
                return None
            raise
        with self._link.reading():
            message: dict[str, Any] = answer["message"]
        return message

    async def _remove(self, one: Exhausted) -> None:
        number = int(str(one.delivery.position).rpartition("/")[2])
        try:
            await self._link.ask(f"STREAM.MSG.DELETE.{one.stream}", {"seq": number})
        except Declined as error:
            if error.code not in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
                raise


def _headers(encoded: str) -> dict[str, str]:
    lines = b64decode(encoded).split(b"\r\n")[1:]
    pairs = (line.partition(b":") for line in lines if line)
    return {
        name.strip().decode("ascii", "replace"): value.strip().decode(
            "utf-8", "replace"
        )
        for name, _, value in pairs
    }


def _nanos(text: str | None, otherwise: datetime | None) -> int:
    at = otherwise or _EPOCH
    if text is not None:
        at = datetime.fromisoformat(text[:19] + "+00:00")
    return int((at - _EPOCH).total_seconds()) * 1_000_000_000
