"""What is told of an attempt that has ended."""

import asyncio

import pytest

from deadletter import DLQPolicy, GiveUp, NoBackoff
from deadletter.core.events import Buried, Event, FailedForGood, Retried
from deadletter.core.failure import Trouble
from deadletter.core.policy import Disposition
from rig import Rig


@pytest.mark.parametrize(
    ("policy", "error", "kinds"),
    [
        (DLQPolicy(max_attempts=2, backoff=NoBackoff()), TimeoutError("slow"), [Retried, Buried]),
        (DLQPolicy(), GiveUp("no"), [Buried]),
        (
            DLQPolicy(dispositions={Trouble.UNKNOWN: Disposition.FAIL}),
            LookupError("odd"),
            [FailedForGood],
        ),
    ],
)
async def test_a_failed_attempt_says_how_long_it_took(
    policy: DLQPolicy, error: Exception, kinds: list[type[Event]]
) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=policy)
    async def handle(body: bytes) -> None:
        await asyncio.sleep(0.02)
        raise error

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

    told = [event for event in rig.events if isinstance(event, Retried | Buried | FailedForGood)]
    assert [type(event) for event in told] == kinds
    assert all(0.01 < event.seconds < 10 for event in told)
