"""What a factory looks at before it starts to work."""

import pytest

from deadletter.core.errors import ConfigError
from deadletter.core.policy import DLQPolicy, LimitMode
from deadletter.runtime.loop_factory import LoopFactory, Registration
from deadletter.runtime.registration import WorkerOptions
from deadletter.stores.memory import MemoryEngine
from deadletter.testing.fakes import FakeClock, SeededDice

POLICIES = {
    "orders": DLQPolicy(max_attempts=3),
    "bills": DLQPolicy(max_attempts=3, limit_mode=LimitMode.EXCEEDED),
    "parcels": DLQPolicy(max_attempts=0),
}


class Limits:
    """What the mailboxes of a broker allow, and what it was asked about them."""

    def __init__(self, **most: int) -> None:
        self.asked: dict[str, int] = {}
        self._most = most

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        self.asked[mailbox] = attempts
        most = self._most.get(mailbox)
        if most is None or 0 < attempts <= most:
            return None
        return f"{mailbox} allows {most}: raise its limit to {attempts}"


def factory_under(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> LoopFactory:
    clock, dice = FakeClock(), SeededDice()
    engine = MemoryEngine(clock=clock, dice=dice)
    monkeypatch.setattr(engine.broker, "conflict", limits.conflict)
    assert engine.letters is not None
    return LoopFactory(
        engine,
        engine.letters,
        handlers=[
            Registration(mailbox=mailbox, function=handle, options=WorkerOptions(policy=policy))
            for mailbox, policy in POLICIES.items()
        ],
        letter_handlers=[],
        clock=clock,
        dice=dice,
        observe=lambda _: None,
    )


async def handle(body: bytes) -> None:
    pass


async def test_every_mailbox_is_asked_about_all_attempts_its_handler_may_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(orders=3, bills=4)

    loops = await factory_under(limits, monkeypatch).build()

    assert limits.asked == {"orders": 3, "bills": 4, "parcels": 0}
    assert len(loops) == 4


@pytest.mark.parametrize("mailbox", POLICIES)
async def test_a_mailbox_that_takes_messages_away_too_soon_is_not_worked(
    monkeypatch: pytest.MonkeyPatch, mailbox: str
) -> None:
    factory = factory_under(Limits(**{mailbox: 2}), monkeypatch)

    with pytest.raises(ConfigError, match=f"{mailbox} allows 2: raise its limit"):
        await factory.build()
