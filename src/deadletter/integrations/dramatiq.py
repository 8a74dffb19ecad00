"""
Dramatiq: messages that fail for good are filed by their own workers.

    from deadletter.integrations.dramatiq import DeadLetters

    broker.add_middleware(DeadLetters("sqlite:///office.db"))

A message is filed before the worker rejects it. On Redis it is then taken out of Dramatiq's
own dead queue, as `dlq drain` does: the office has it. Without the office it stays there.
"""

import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dramatiq import Broker, Message, Middleware

from deadletter.brokers.redis.frameworks.dramatiq import found_in
from deadletter.core.events import Observer
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.origin import LINEAGE
from deadletter.intake.dialects import Found
from deadletter.intake.dialects.frameworks import CAUGHT, ERROR_TEXT, ERROR_TYPE, STORY
from deadletter.system import SystemClock

from .reporter import TIMEOUT, Counts, Reporter, redis_label
from .stories import STORY_NAME, Stories

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

_ID: Final = "redis_message_id"
_NAMESPACE: Final = "dramatiq"


class _Failed(NamedTuple):
    """The latest attempt of a message, until it is acknowledged or rejected."""

    error: BaseException
    stack: str
    retries: int
    earlier: str


class DeadLetters(Middleware):
    """
    Middleware that files what Dramatiq gives up; add it last.

    Args:
        office: The URL of the office (default: that of the settings).
        server: The name of the broker in the settings of `dlq`, by which letters find the
            way back (default: the URL of a Redis broker without its secrets).
        timeout: Seconds that a failed message may wait for the office (default 10).
        observe: A function that is called with every event (default: they are logged).
    """

    def __init__(
        self,
        office: str | None = None,
        *,
        server: str = "",
        timeout: float = TIMEOUT,
        observe: Observer | None = None,
    ) -> None:
        self._server = server
        self._reporter = Reporter(
            office, server=lambda: self._server, timeout=timeout, observe=observe
        )
        self._stories = Stories(self._reporter, "dramatiq-story")
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._failed: dict[str, _Failed] = {}
        self._kept: set[str] = set()

    @property
    def counts(self) -> Counts:
        """What became of the reports of this process."""
        return self._reporter.counts

    def after_process_message(
        self,
        broker: Broker,
        message: "MessageProxy",
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        """Remember the error of an attempt, or confirm the copy of a replay."""
        if exception is None:
            is_copy = not LINEAGE.isdisjoint(message.options)
            if is_copy or getattr(message, "redelivered", False):
                self._reporter.handled(self._found(broker, message, None))
            return
        id_, retries = message.message_id, message.options.get("retries", 0)
        earlier = self._stories.read(id_, message.options.get(STORY_NAME))
        stack = "".join(traceback.format_exception(exception))
        with self._lock:
            self._failed[id_] = _Failed(exception, stack, retries, earlier)
        # Whether it is retried is decided after us: the options go with it if it is.
        longer = self._stories.longer(id_, earlier, exception, number=retries + 1)
        message.options.pop(STORY_NAME, None)
        if longer:
            message.options[STORY_NAME] = longer

    def before_ack(self, broker: Broker, message: "MessageProxy") -> None:
        """Forget the error of an attempt that is retried."""
        with self._lock:
            self._failed.pop(message.message_id, None)

    def before_nack(self, broker: Broker, message: "MessageProxy") -> None:
        """File a message that failed for good."""
        with self._lock:
            failed = self._failed.pop(message.message_id, None)
        if failed is None and (error := message._exception) is not None:  # noqa: SLF001
            stack = "".join(traceback.format_exception(error))
            failed = _Failed(error, stack, message.options.get("retries", 0), "")
        found, id_ = self._found(broker, message, failed), message.message_id
        if self._reporter.died(found, filed_later=partial(_take_out, broker, message)):
            with self._lock:
                self._kept.add(id_)

    def after_nack(self, broker: Broker, message: "MessageProxy") -> None:
        """Take a message that the office has out of Dramatiq's own dead queue on Redis."""
        with self._lock:
            is_kept = message.message_id in self._kept
            self._kept.discard(message.message_id)
        if is_kept:
            _take_out(broker, message)

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        """File what waits, and close the office."""
        self._reporter.close()

    def after_declare_queue(self, broker: Broker, queue_name: str) -> None:
        """Find out which server letters return to, unless it was named."""
        client = getattr(broker, "client", None)
        if not self._server and client is not None:
            self._server = redis_label(client)

    def _found(self, broker: Broker, message: "MessageProxy", failed: _Failed | None) -> Found:
        """Return a message as a drain would have found it in its dead queue."""
        options = {k: v for k, v in message.options.items() if k != STORY_NAME}
        about: dict[str, str] = {CAUGHT: "failed for good in a worker of Dramatiq"}
        if failed is not None:
            options |= {"retries": failed.retries, "traceback": failed.stack}
            about[ERROR_TYPE] = plain_name(type(failed.error))
            about[ERROR_TEXT] = text_of(failed.error)
            about[STORY] = failed.earlier
        told: dict[str, Any] = {**message.asdict(), "options": options}
        now = self._clock.now().timestamp() * 1000
        namespace = getattr(broker, "namespace", _NAMESPACE)
        queue = message.queue_name
        if namespace != _NAMESPACE:
            queue = f"{namespace}:{queue}"
        name = str(options.get(_ID, message.message_id)).encode()
        found = found_in(queue, name, now, Message(**told).encode())
        kind = "dramatiq" if _ID in options else "rabbitmq"
        raw = found.raw if kind == "dramatiq" else b""
        return Found(
            kind=kind,
            place=found.place,
            source=found.source,
            id=message.message_id,
            body=found.body,
            headers=found.headers,
            about={**found.about, **about},
            at=found.at,
            content_type=found.content_type,
            raw=raw,
        )


def _take_out(broker: Any, message: "MessageProxy") -> None:
    client, id_ = getattr(broker, "client", None), message.options.get(_ID)
    if client is None or id_ is None:
        return  # RabbitMQ removes it from its dead queue when its time is over
    dead = f"{broker.namespace}:{message.queue_name}.XQ"
    with client.pipeline(transaction=True) as pipe:
        pipe.zrem(dead, id_)
        pipe.hdel(f"{dead}.msgs", id_)
        pipe.execute()
