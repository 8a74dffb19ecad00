"""
Metrics and alarms for CloudWatch.

    watch = CloudWatch()
    app = App(url, observe=fan_out(watch, log_events(clock)))
    async with cloudwatch(region="eu-west-1") as client:
        await watch.publish_every(60, client, await app.letters(), stop)

    ProcessingLatency        seconds from the death of a message until its letter was handled
    HandlerTime              seconds that the handler of the letter took
    DeadLetterQueueMessages  messages in a dead-letter queue
    OpenLetters              letters of the office that still need work
    MessagesDeadLettered     deaths
    Errors                   failed attempts, by category

Counts are collected here and sent as sums, so that a flood of dead letters costs no more calls
than a few.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore import exceptions as theirs  # type: ignore[import-untyped]
from msgspec import Struct

from deadletter.core.alerts import NAMESPACE
from deadletter.core.errors import BackendError, ConfigError, Unavailable
from deadletter.core.events import Buried, Event, FailedForGood, LetterHandled, OutOfReach, Retried
from deadletter.core.letter import still_open
from deadletter.ports import Broker, LetterStore

from .alerts import alarms, dimension
from .metrics import Capped

_LEVELS: Final = frozenset({"OpenLetters", "DeadLetterQueueMessages"})
AT_ONCE: Final = 500  # numbers in one call; the service accepts 1,000
_BAD_CREDENTIALS: Final = frozenset(
    {"InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException"}
)

_log: Final = logging.getLogger(__name__)

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric and its dimensions."""


class Sum(Struct):
    """The aggregated values of one series, in the form of CloudWatch."""

    unit: str
    count: float = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def add(self, other: "Sum") -> None:
        """Add these values."""
        is_first = not self.count
        self.least = other.least if is_first else min(self.least, other.least)
        self.most = other.most if is_first else max(self.most, other.most)
        self.count += other.count
        self.total += other.total


class CloudWatch:
    """An observer that adds up events until they are published."""

    def __init__(self) -> None:
        self._sums: dict[Series, Sum] = {}
        self._source = Capped()

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, Buried):
            source = ("Source", self._source(event.mailbox))
            self._count("MessagesDeadLettered", source)
        if isinstance(event, Buried | Retried | FailedForGood):
            failure = event.failure
            kind = ("Category", failure.category.value)
            self._count("Errors", kind, ("Trouble", failure.trouble.value))
        elif isinstance(event, LetterHandled):
            mailbox = ("Mailbox", self._source(event.mailbox))
            self._add("ProcessingLatency", event.age, "Seconds", mailbox)
            self._add("HandlerTime", event.seconds, "Seconds", mailbox)
        elif isinstance(event, OutOfReach) and event.what.startswith(("office", "letter")):
            self._count("DeadLetterFailures")

    async def publish(
        self,
        client: Any,
        store: LetterStore | None = None,
        *,
        broker: Broker | None = None,
        queues: Collection[str] = (),
    ) -> int:
        """
        Send the sums, the open letters of each source and the messages of dead-letter queues.

        Returns how many numbers that were. Those that could not be sent are sent the next
        time, with what was added since.
        """
        if broker is not None:
            for queue in await broker.queues():
                if queue.options.name in queues:
                    held = queue.ready + queue.delayed + queue.claimed + queue.suspects
                    name = ("Mailbox", self._source(queue.options.name))
                    self._add("DeadLetterQueueMessages", float(held), "Count", name)
        if store is not None:
            for source, states in (await store.counts()).items():
                depth = still_open(states)
                name = ("Source", self._source(source))
                self._add("OpenLetters", float(depth), "Count", name)
        sums, self._sums = self._sums, {}
        left = list(sums.items())
        try:
            while left:
                await _called(
                    client.put_metric_data(
                        Namespace=NAMESPACE, MetricData=[_datum(*one) for one in left[:AT_ONCE]]
                    )
                )
                left = left[AT_ONCE:]
        finally:
            for series, one in left:
                if series[0] not in _LEVELS:  # an old level is useless
                    self._sums.setdefault(series, Sum(one.unit)).add(one)
        return len(sums)

    async def publish_every(
        self,
        seconds: float,
        client: Any,
        store: LetterStore,
        stop: asyncio.Event,
        *,
        broker: Broker | None = None,
        queues: Collection[str] = (),
    ) -> None:
        """
        Publish until `stop` is set, and once more then.

        Numbers that could not be published are kept for the next time. The reason is logged
        once until it works again.
        """
        works = True
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
            try:
                await self.publish(client, store, broker=broker, queues=queues)
                works = True
            except BackendError as error:
                if works:
                    _log.warning("metrics could not be published: %s", error)
                works = False

    def _count(self, metric: str, *dimensions: tuple[str, str]) -> None:
        self._add(metric, 1.0, "Count", *dimensions)

    def _add(self, metric: str, value: float, unit: str, *dimensions: tuple[str, str]) -> None:
        sums = self._sums.setdefault((metric, dimensions), Sum(unit))
        sums.add(Sum(unit, 1, value, value, value))


async def put_alarms(
    client: Any,
    *,
    sources: Sequence[str] = (),
    queues: Sequence[str] = (),
    topic: str | None = None,
) -> list[str]:
    """
    Create or change the alarms of each source and each SQS dead-letter queue; return their
    names.

    They notify the SNS `topic`.
    """
    wanted = alarms(sources=sources, queues=queues, topic=topic)
    for alarm in wanted:
        await _called(client.put_metric_alarm(**alarm))
    return [alarm["AlarmName"] for alarm in wanted]


@asynccontextmanager
async def cloudwatch(
    *, region: str | None = None, endpoint: str | None = None
) -> AsyncIterator[Any]:
    """Open a client of CloudWatch, with the credentials of the environment or the machine."""
    async with AsyncExitStack() as stack:
        client = get_session().create_client(
            "cloudwatch", region_name=region, endpoint_url=endpoint
        )
        try:
            opened = await stack.enter_async_context(client)
        except theirs.NoRegionError as error:
            raise ConfigError("no AWS region is set: use --region, or set AWS_REGION") from error
        except (theirs.BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"CloudWatch is unavailable: {error}; check region, endpoint and AWS_PROFILE"
            ) from error
        yield opened


def _datum(series: Series, one: Sum) -> dict[str, Any]:
    name, dimensions = series
    return {
        "MetricName": name,
        "Dimensions": [{"Name": key, "Value": dimension(value)} for key, value in dimensions],
        "Unit": one.unit,
        "StatisticValues": {
            "SampleCount": one.count,
            "Sum": one.total,
            "Minimum": one.least,
            "Maximum": one.most,
        },
    }


async def _called(call: Any) -> Any:
    try:
        return await call
    except (theirs.BotoCoreError, theirs.ClientError, OSError) as error:
        raise Unavailable(f"CloudWatch: {error}{_advice(error)}") from error


def _advice(error: Exception) -> str:
    match error:
        case theirs.NoCredentialsError() | theirs.PartialCredentialsError():
            return (
                ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run"
                " where a role gives them"
            )
        case theirs.ClientError() if _code(error).startswith("AccessDenied"):
            return ": allow this identity cloudwatch:PutMetricAlarm and cloudwatch:PutMetricData"
        case theirs.ClientError() if _code(error) in _BAD_CREDENTIALS:
            return ": check the AWS keys, and the clock of this machine"
        case theirs.EndpointConnectionError():
            return ": check that the endpoint is running, and that region and endpoint are correct"
    return ""


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
