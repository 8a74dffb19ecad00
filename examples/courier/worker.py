"""
gateway-worker: delivers each event to the downstream system once, or buries it.

Retries, classification, the ledger, letters and their copies in the dead-letter queue are
deadletter's. This module says what to do with an event.
"""

import asyncio
import os
import sys
from functools import partial
from typing import Final

from deadletter import App, ConfigError, Context, Profile
from deadletter.core.events import Observer
from deadletter.core.letter import By
from deadletter.observe.logs import log_events
from deadletter.system import SystemClock
from deadletter.wiring.chores import Chore

from .downstream_client import Downstream
from .event import Event, key_of
from .migration import check_taken_over
from .policy import policy_of
from .retention import Cleaning
from .settings import MAIN, Settings, of_this_process

CONSUMER: Final = "gateway-worker"
NICENESS: Final = 5  # on a machine they share, the gateway's answers go first


def build(
    settings: Settings, profile: Profile, downstream: Downstream, *, observe: Observer
) -> App:
    """Return the worker: one handler on the main queue."""
    app = App(settings.worker_queue_url, office=settings.office_url, observe=observe)
    timeout = settings.downstream_timeout_ms / 1000

    async def deliver(event: Event, context: Context) -> None:
        await downstream.hand_over(event, attempt=context.delivery.charged)

    deliver.__qualname__ = CONSUMER  # the consumer in letters
    app.handler(
        MAIN,
        policy=policy_of(profile),
        brake=profile.brake,
        slots=settings.worker_concurrency,
        lease=settings.worker_lease_seconds,
        time_limit=2 * timeout,
        grace=settings.worker_drain_timeout_ms / 1000,
        idempotent=key_of,
        bodies_may_differ=True,  # each report of an event carries its own time
        ledger_ttl=settings.processed_events_ttl_days * 86_400,
    )(deliver)
    return app


async def cleaning(app: App, settings: Settings, profile: Profile, observe: Observer) -> Chore:
    """Return the chore that deletes what is past its time."""
    clock = SystemClock()
    cleaner = Cleaning(await app.engine(), await app.letters(), settings, profile, clock)
    run = partial(cleaner.run, By(CONSUMER, "DLQ_TTL_DAYS"))
    every = settings.retention_every_seconds
    return Chore("retention", run, interval=every, clock=clock, observe=observe)


async def work(
    settings: Settings, profile: Profile, *, observe: Observer, stop: asyncio.Event | None = None
) -> int:
    """Work until `stop` is set or a signal arrives. Raises ConfigError before a migration."""
    await check_taken_over(settings)
    seconds = settings.downstream_timeout_ms / 1000
    async with (
        Downstream(settings.downstream_url, seconds=seconds) as downstream,
        build(settings, profile, downstream, observe=observe) as app,
    ):
        chore = await cleaning(app, settings, profile, observe)
        ending = asyncio.Event()
        cleaner = asyncio.create_task(chore.run(ending))
        try:
            return await app.work(stop, install_signals=stop is None)
        finally:
            ending.set()
            await cleaner


def main() -> int:
    """Run the worker of this environment."""
    settings, profile = of_this_process()
    os.nice(NICENESS)
    try:
        return asyncio.run(work(settings, profile, observe=log_events(SystemClock())))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
