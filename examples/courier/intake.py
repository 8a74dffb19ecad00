"""Queueing of events: those that arrive together are sent in one call."""

from collections.abc import Sequence
from typing import Final

from deadletter import App, BackendError, Message, Profile
from deadletter.core.errors import Refused
from deadletter.queue_server.waiting_requests import RequestBatcher, TryAgain
from deadletter.system import SystemClock, SystemDice

from .event import Event, encoded
from .policy import job_options
from .problems import Problem
from .settings import MAIN

PRODUCER: Final = "gateway-api"
JSON: Final = "application/json"
_TOGETHER: Final = 200  # events in one call
_WAITING: Final = 5_000  # events that may wait for the next one
_WITHIN: Final = 2.0  # seconds
_AGAIN_AFTER: Final = 5


class Intake:
    """
    Queues events, and returns once the queue has them durably.

    Events that arrive during a call share the next one, so that a hundred clients at once cost
    little more than one. No event waits for others to arrive.
    """

    def __init__(self, queue: App, profile: Profile) -> None:
        self._queue = queue
        self._options = job_options(profile)
        self._clock, self._dice = SystemClock(), SystemDice()
        self._gathering: RequestBatcher[Message, None] = RequestBatcher(
            self._send, most=_TOGETHER, limit=_WAITING
        )

    async def put(self, event: Event) -> None:
        """Queue an event. Raises Problem if it is not queued."""
        try:
            await self._gathering.ask(self._message(event), size=1, within=_WITHIN)
        except Refused as error:
            raise Problem(400, "INVALID_PAYLOAD", f"Refused: {error}.") from None
        except (BackendError, TryAgain):
            raise Problem(
                503,
                "INTAKE_UNAVAILABLE",
                "The event is not queued. Send it again in a moment.",
                _AGAIN_AFTER,
            ) from None

    async def is_ready(self) -> bool:
        """Return whether the queue answers."""
        try:
            await (await self._queue.engine()).broker.queues()
        except BackendError:
            return False
        return True

    async def close(self) -> None:
        """Queue the events that still wait, and close the queue."""
        await self._gathering.drained()
        await self._queue.close()

    def _message(self, event: Event) -> Message:
        return Message(
            id=self._dice.new_id(),
            body=encoded(event),
            sent_at=self._clock.now(),
            content_type=JSON,
            idempotency_key=event.idempotency_key,
            headers=(
                ("x-producer", PRODUCER.encode()),
                ("x-trace-id", event.trace_id.encode()),
                # For workers of BullMQ that share the queue.
                ("bullmq-name", event.event_type.encode()),
                ("bullmq-opts", self._options),
            ),
        )

    async def _send(self, messages: Sequence[Message]) -> Sequence[None]:
        broker = (await self._queue.engine()).broker
        await broker.sink(MAIN).send(messages)
        return [None] * len(messages)
