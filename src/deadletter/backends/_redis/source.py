"""
Deliveries of one mailbox.

When a connection breaks, what was asked for may have been done. A claim whose answer
got lost is undone first; a settlement that is repeated says so. What could not be
cleared up while the server was away is remembered here, until the same is asked for
again.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from deadletter.core.errors import BackendError
from deadletter.core.message import Delivery
from deadletter.ports.broker import Settlement
from deadletter.ports.features import Features

from .box import Box
from .errors import Unsure
from .lanes import tokens
from .link import Argument, surely
from .times import seconds, when

SLICE: Final = 500  # so many at once, so that others do not wait long for the server
_SLACK: Final = 1.0  # seconds by which the server's clock and ours may drift meanwhile


class Claim(Struct, frozen=True):
    """A claim that was asked for."""

    token: str
    lease: float
    asked_at: float


class BoxSource:
    """Deliveries of one mailbox."""

    longest: ClassVar[float] = float("inf")  # seconds to wait before another look

    def __init__(self, box: Box, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box
        self._tokens = tokens()
        self._lost: list[Claim] = []  # claims whose answer got lost

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            found, due_in = await self._claim(min(limit, SLICE), lease, alone=alone)
            if found:
                return found + await self._more(len(found), limit, lease)
            left = deadline - loop.time()
            if left <= 0:
                return []
            await self._rung(min(left, due_in, self.longest), alone=alone)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back, in one step; says for each if it was ours."""
        answers: list[bool] = []
        for start in range(0, len(settlements), SLICE):
            answers += await self._box.settling.settle(
                settlements[start : start + SLICE]
            )
        return answers

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        by = seconds(lease)
        answers: list[bool] = []
        for start in range(0, len(deliveries), SLICE):
            some = deliveries[start : start + SLICE]
            receipts = [part for delivery in some for part in delivery.receipt]
            answers += await self._extend(by, receipts)
        return answers

    async def _extend(self, by: int, receipts: Sequence[Argument]) -> list[bool]:
        said = await surely(
            lambda _: self._box.ask(self._box.verbs.extend, by, *receipts)
        )
        return [answer == 1 for answer in said]

    async def _more(self, got: int, limit: int, lease: float) -> list[Delivery]:
        """The rest of a large order, as long as there is any."""
        more: list[Delivery] = []
        while got == SLICE and (limit := limit - SLICE) > 0:
            try:
                found, _ = await self._claim(min(limit, SLICE), lease, alone=False)
            except BackendError:
                break  # what we have is ours
            more += found
            got = len(found)
        return more

    async def _claim(
        self, limit: int, lease: float, *, alone: bool
    ) -> tuple[list[Delivery], float]:
        """Claim what is due; if nothing is, in how many seconds something will be."""
        token, said = await surely(lambda _: self._try(limit, lease, alone=alone))
        if len(said) == 1:
            due_in = float(said[0]) / 1_000_000
            return [], float("inf") if due_in < 0 else due_in
        now, *parts = said
        return self._box.deliveries(token, parts, first=when(now)), 0.0

    async def _try(self, limit: int, lease: float, *, alone: bool) -> tuple[str, Any]:
        """Ask once. Claims whose answer got lost are undone before."""
        while self._lost:
            await self._undo(self._lost[-1])
            self._lost.pop()
        claim = Claim(next(self._tokens), lease, asyncio.get_running_loop().time())
        args = (claim.token, seconds(lease), limit, int(alone))
        asking = self._box.link.begin(self._box.verbs.receive, self._box.keys, *args)
        try:
            said = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # Nobody will ever see these deliveries: as if they had not been made.
            self._box.link.start(self._give_back(asking, claim))
            raise
        except Unsure:
            self._lost.append(claim)
            raise
        if said is None:
            await self._box.make()
            return await self._try(limit, lease, alone=alone)
        return claim.token, said

    async def _give_back(self, asking: "asyncio.Task[Any]", claim: Claim) -> None:
        try:
            said = await asking
        except Unsure:
            said = None  # it may have got some
        if said is None or len(said) > 1:
            await self._undo(claim)

    async def _undo(self, claim: Claim) -> None:
        since = asyncio.get_running_loop().time() - claim.asked_at + _SLACK
        await self._box.ask(
            self._box.verbs.undo, claim.token, seconds(claim.lease), seconds(since)
        )

    async def _rung(self, within: float, *, alone: bool) -> None:
        """Wait until there may be something, or the time is over."""
        try:
            await self._box.waited(within, alone=alone)
        except asyncio.CancelledError:
            # It may have rung for us just now: it rings for somebody else, then.
            self._box.pass_on(alone=alone)
            raise
