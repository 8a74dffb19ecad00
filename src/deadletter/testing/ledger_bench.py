"""Common ground of the contracts of ledgers."""

from typing import Final

import pytest

from deadletter.core.ids import body_digest
from deadletter.ports import Engine, Ledger, LedgerClaim, LedgerKey, LedgerState

from .fakes import FakeClock

TTL: Final = 1000.0
DONE, BUSY = LedgerState.PROCESSED, LedgerState.PROCESSING
FAILED, DEAD = LedgerState.FAILED, LedgerState.DEAD_LETTERED


class LedgerBench:
    """A ledger, and how it is asked for one key."""

    driver: type[Engine]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def ledger(self, engine: Engine) -> Ledger:
        assert engine.ledger is not None
        return engine.ledger

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Let so much time pass for the engine; a true sleep where it keeps time."""
        clock.advance(seconds)

    async def begun(
        self,
        ledger: Ledger,
        key: str = "k",
        *,
        generation: int = 0,
        holder: str = "",
        lease: float = 30.0,
        body: bytes | None = None,
    ) -> LedgerClaim:
        """The answer to beginning one key."""
        asked = LedgerKey(
            "orders",
            key,
            generation,
            holder,
            None if body is None else body_digest(body),
        )
        (claim,) = await ledger.begin([asked], lease=lease)
        assert claim.key == asked
        return claim

    async def finished(
        self, ledger: Ledger, claim: LedgerClaim, state: LedgerState
    ) -> bool:
        """Whether a claim was still ours to finish."""
        (ours,) = await ledger.finish([(claim, state)], ttl=TTL)
        return ours
