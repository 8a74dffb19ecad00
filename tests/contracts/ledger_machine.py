"""
A ledger driven beside a model's, step by step, by hypothesis.

Both share a clock and get the same calls; after every step they must have given the
same answers. A backend's test is a subclass that says how to open both, and
`TestName = Subclass.TestCase`.
"""

from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from contracts.side_by_side import SideBySide
from deadletter.ports import Engine, Ledger, LedgerClaim, LedgerKey, LedgerState
from deadletter.ports.engine import DIGEST

T = TypeVar("T")

_KEYS = [
    LedgerKey(box, key, digest=digest)
    for box in ("orders", "returns")
    for key in ("a", "b")
    for digest in (None, b"a" * DIGEST)
]
_asked = st.builds(
    LedgerKey,
    st.sampled_from(["orders", "returns"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.sampled_from(["", "m-1", "m-2"]),
    st.sampled_from([None, b"a" * DIGEST, b"b" * DIGEST, b"\0" * DIGEST]),
)
_ends = st.sampled_from([LedgerState.PROCESSED, LedgerState.FAILED, LedgerState.DEAD_LETTERED])


class LedgerMachine(SideBySide):
    """Calls both ledgers alike and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[tuple[LedgerClaim, LedgerClaim]] = []  # ours, the model's

    @initialize()
    def begin_both(self) -> None:
        self.open_both()

    @rule(keys=st.lists(_asked, max_size=4), lease=st.sampled_from([2.0, 20.0]))
    def begin(self, keys: list[LedgerKey], lease: float) -> None:
        ours, theirs = self._both(lambda ledger: ledger.begin(keys, lease=lease))
        self._compare([_told(c) for c in ours], [_told(c) for c in theirs])
        self.claims += zip(ours, theirs, strict=True)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), end=_ends, ttl=st.sampled_from([1.0, 30.0]))
    def finish(self, data: st.DataObject, end: LedgerState, ttl: float) -> None:
        latest = st.sampled_from(self.claims[-8:])
        pairs = data.draw(st.lists(latest, min_size=1, max_size=5))
        ledger, model = _ledger(self.engine), _ledger(self.model)
        ours = ledger.finish([(pair[0], end) for pair in pairs], ttl=ttl)
        theirs = model.finish([(pair[1], end) for pair in pairs], ttl=ttl)
        self._compare(self._run(ours), self._run(theirs))

    @rule(seconds=st.sampled_from([1.0, 2.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(abandoned=st.sampled_from([None, 5.0]))
    def forget(self, abandoned: float | None) -> None:
        self._compare(*self._both(lambda one: one.forget(abandoned=abandoned)))

    @invariant()
    def both_stand_the_same(self) -> None:
        if hasattr(self, "model"):
            self._compare(*self._both(lambda ledger: ledger.look(_KEYS)))

    def _both(self, call: Any) -> tuple[Any, Any]:
        engines = (self.engine, self.model)
        ours, theirs = (self._run(call(_ledger(engine))) for engine in engines)
        return ours, theirs


def _ledger(engine: Engine) -> Ledger:
    assert engine.ledger is not None
    return engine.ledger


def _told(claim: LedgerClaim) -> tuple[Any, ...]:
    """Everything about a claim but its token, which is its driver's own."""
    return claim.key, claim.mine, claim.state, claim.conflict
