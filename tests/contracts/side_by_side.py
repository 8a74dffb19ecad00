"""What the state machines of engines share: two of them, driven alike."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from deadletter.ports import Engine
from deadletter.testing.fakes import FakeClock

T = TypeVar("T")


class SideBySide(RuleBasedStateMachine):
    """An engine beside the one that is right, on one clock that stands still."""

    engine: Engine
    model: Engine

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self._runner = asyncio.Runner()

    async def open(self) -> Engine:
        """Return the engine under test, on `self.clock`; again after a reopen."""
        raise AssertionError("say how to open your engine")

    async def open_model(self) -> Engine:
        """Return the engine that is right, on `self.clock`."""
        raise AssertionError("say how to open the model")

    def open_both(self) -> None:
        """Open the two: what every machine begins with."""
        self.engine = self._run(self.open())
        self.model = self._run(self.open_model())

    def teardown(self) -> None:
        """Close what was opened."""
        if hasattr(self, "model"):
            self._run(self.engine.close())
            self._run(self.model.close())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _compare(self, ours: object, theirs: object) -> None:
        assert ours == theirs, f"the model says {theirs!r}"
