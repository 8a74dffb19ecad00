"""
The process of the consumers: main and DLQ consumer, always together.

Both are built from parts of their own, so that each could be a service one day. That
they run together is a rule of the profile, and is checked before anything starts.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from deadletter import App
from deadletter.core.events import Observer
from deadletter.observe.cloudwatch import CloudWatch, cloudwatch
from deadletter.observe.logs import log_events
from deadletter.observe.observers import fan_out
from deadletter.ports import Clock
from deadletter.system import SystemClock, SystemDice

from .database import open_database
from .dlq_consumer import DeadLetterConsumer
from .downstream import Downstream
from .main_consumer import MainConsumer
from .queues import check_queues
from .reprocessing import Reprocessing
from .settings import DEAD_QUEUE, Settings
from .table import Table

MAIN: Final = "main"
DLQ: Final = "dlq"
BOTH: Final = frozenset({MAIN, DLQ})


@asynccontextmanager
async def opened_consumers(
    settings: Settings,
    *,
    which: frozenset[str] = BOTH,
    observe: Observer | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[App]:
    """The app with its consumers and queues, ready to work."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        database = await open_database(settings.database)
        stack.push_async_callback(database.close)
        await database.migrate()
        table = Table(database, clock)
        downstream = Downstream(settings.relayer, settings.relayer_timeout)
        stack.push_async_callback(downstream.close)
        app = App(
            settings.sqs, office=settings.office, observe=observe or log_events(clock), clock=clock
        )
        await stack.enter_async_context(app)
        await check_queues((await app.engine()).broker, settings)
        if MAIN in which:
            MainConsumer(settings, table, downstream, clock).register(app)
        if DLQ in which:
            again = Reprocessing(app, settings, table, clock, SystemDice())
            DeadLetterConsumer(app, settings, table, again).register()
        yield app


async def consume(settings: Settings, which: frozenset[str] = BOTH) -> int:
    """Run the consumers until a signal ends them; the exit code."""
    settings.profile.check_consumers(worker=MAIN in which, dlq_consumer=DLQ in which)
    watch = CloudWatch()
    observe = fan_out(watch, log_events(SystemClock()))
    async with (
        opened_consumers(settings, which=which, observe=observe) as app,
        _publishing(watch, app, settings),
    ):
        return await app.work(
            health_port=settings.health_port, health_host=settings.host, install_signals=True
        )


@asynccontextmanager
async def _publishing(watch: CloudWatch, app: App, settings: Settings) -> AsyncIterator[None]:
    """Publish the numbers meanwhile, and what is left of them at the end."""
    if not settings.publish_every:
        yield
        return
    stop = asyncio.Event()
    async with cloudwatch(region=settings.region) as client:
        publishing = asyncio.create_task(
            watch.publish_every(
                settings.publish_every,
                client,
                await app.letters(),
                stop,
                broker=(await app.engine()).broker,
                queues=[DEAD_QUEUE],
            )
        )
        try:
            yield
        finally:
            stop.set()
            await publishing
