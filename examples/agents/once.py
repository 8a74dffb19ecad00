"""Replaying each request once, whoever asks and however often."""

from typing import Any, Final

import structlog

from deadletter.ports import Ledger, LedgerClaim, LedgerKey, LedgerState

from .letters import DeadLetter
from .message import Mailbox
from .post import Post
from .replay import Went, send_back
from .resolvers import MailboxResolver

LEASE: Final = 60.0  # seconds to send one
TTL: Final = 2_592_000.0  # 30 days: as long as letters are kept
log = structlog.get_logger("agents.replay")


class Seen:
    """
    Which requests were replayed, remembered by the broker under a name.

    It survives the process and is shared by all that use the same name. A request
    without an id counts by its message, not as one with all others that have none.
    """

    def __init__(self, post: Post, name: str) -> None:
        self._post = post
        self._place = f"replays.{name}"

    def begin(self, letter: DeadLetter[Any]) -> LedgerClaim:
        """Claim the request; not `mine` when it was replayed, or is just being."""
        key = LedgerKey(
            self._place,
            str(letter.request_id or f"message {letter.message_id}"),
            # Whoever died while sending this very letter may have another go at once.
            holder=letter.message_id,
        )

        async def beginning() -> LedgerClaim:
            (claim,) = await (await self._ledger()).begin([key], lease=LEASE)
            return claim

        return self._post.call(beginning())

    def finish(self, claim: LedgerClaim) -> None:
        """It was sent."""

        async def finishing() -> None:
            ended = [(claim, LedgerState.PROCESSED)]
            await (await self._ledger()).finish(ended, ttl=TTL)

        self._post.call(finishing())

    async def _ledger(self) -> Ledger:
        ledger = (await self._post.engine()).ledger
        assert ledger is not None  # Redis and memory keep one
        return ledger


def replay_with_dedup(
    dead_letter: DeadLetter[Any],
    source: Mailbox[Any, Any],
    seen: Seen,
    *,
    reply_resolver: MailboxResolver,
) -> bool:
    """Send it back unless its request was before; says whether it was sent."""
    claim = seen.begin(dead_letter)
    if not claim.mine:
        log.info("Skipping duplicate replay", request_id=str(dead_letter.request_id))
        return False
    went = send_back(dead_letter, source=source, reply_resolver=reply_resolver)
    if went is not Went.HELD:  # nobody has sent it: somebody may, one day
        seen.finish(claim)
    return went is Went.SENT
