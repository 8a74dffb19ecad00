"""
Celery: tasks that fail for good are filed by their own workers.

    from celery import Celery
    from deadletter.integrations.celery import install

    app = Celery("shop", broker="redis://localhost/0")
    install(app, office="sqlite:///office.db")

Tasks, their retries and their results stay as they are. The process that runs a task files it
before the worker's main process acknowledges it, if the task has `acks_late`.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from celery import Celery, current_task, signals
from celery.exceptions import Retry

from deadletter.core.errors import ConfigError
from deadletter.core.events import Observer
from deadletter.core.failure.clues import text_of
from deadletter.core.origin import PACKED, REPLAY_OF, stamp, words
from deadletter.intake.dialects.frameworks import CAUGHT, RESULT, STORY
from deadletter.system import SystemClock
from deadletter.wiring.foreign import server_label

from .celery_messages import WIRE, found_of, wire_of
from .reporter import TIMEOUT, Counts, Reporter
from .stories import STORY_NAME, Stories

_MARK: Final = "deadletter"  # attribute of an app that has our hooks
_SCHEMES: Final = {"pyamqp": "amqp", "pyamqps": "amqps", "librabbitmq": "amqp"}


def install(
    app: Celery,
    office: str | None = None,
    *,
    server: str = "",
    timeout: float = TIMEOUT,
    observe: Observer | None = None,
) -> "CeleryHooks":
    """
    Have the workers of an app file tasks that fail for good.

    Call it where the app is made: nothing is opened before a task fails.

    Args:
        app: The app whose workers file.
        office: The URL of the office (default: that of the settings).
        server: The name of the broker in the settings of `dlq`, by which letters find the
            way back (default: the broker's URL without its secrets).
        timeout: Seconds that a failed task may wait for the office (default 10).
        observe: A function that is called with every event (default: they are logged).
    """
    if getattr(app, _MARK, None) is not None:
        raise ConfigError("deadletter is installed in this app already: call install once")
    hooks = CeleryHooks(app, office, server=server, timeout=timeout, observe=observe)
    setattr(app, _MARK, hooks)
    return hooks


class CeleryHooks:
    """What is installed in an app; `counts` says what became of its reports."""

    def __init__(
        self,
        app: Celery,
        office: str | None,
        *,
        server: str,
        timeout: float,
        observe: Observer | None,
    ) -> None:
        self._app = app
        self._reporter = Reporter(
            office, server=lambda: server or _label(app), timeout=timeout, observe=observe
        )
        self._stories = Stories(self._reporter, "celery-story")
        self._clock = SystemClock()
        self._requests: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._queues: dict[tuple[str, str], str] = {}
        hooks: Mapping[Any, Callable[..., None]] = {
            signals.task_received: self._received,
            signals.before_task_publish: self._publishing,
            signals.task_failure: self._failed,
            signals.task_success: self._succeeded,
            signals.task_unknown: self._undeliverable,
            signals.task_rejected: self._undeliverable,
            signals.worker_process_shutdown: self._ending,
            signals.worker_shutdown: self._ending,
        }
        for signal, hook in hooks.items():
            signal.connect(hook, weak=False)

    @property
    def counts(self) -> Counts:
        """What became of the reports of this process."""
        return self._reporter.counts

    def _received(self, sender: Any = None, request: Any = None, **_: Any) -> None:
        """Pass what the broker knows of a task on to the process that will run it."""
        if request.app is not self._app or not isinstance(request.body, bytes | str | memoryview):
            return  # the old protocol has no headers
        told = request.request_dict
        wire = wire_of(request.message, self._queue(request.message.delivery_info or {}))
        told["properties"] = {**(told.get("properties") or {}), WIRE: wire}
        self._requests[request.id] = request

    def _publishing(self, headers: Any = None, **_: Any) -> None:
        """Write the error of an attempt into the task that its retry sends."""
        error, task = sys.exc_info()[1], current_task
        if error is None or isinstance(error, Retry) or not task or task.app is not self._app:
            return
        request = task.request
        is_retry = isinstance(headers, dict) and headers.get("id") == request.id
        if not is_retry or headers.get("retries") != request.retries + 1:
            return
        earlier = self._stories.read(request.id, (request.headers or {}).get(STORY_NAME))
        longer = self._stories.longer(request.id, earlier, error, number=request.retries + 1)
        headers.pop(STORY_NAME, None)
        if longer:
            headers[STORY_NAME] = longer

    def _failed(
        self,
        sender: Any = None,
        task_id: str = "",
        exception: Any = None,
        einfo: Any = None,
        **_: Any,
    ) -> None:
        """File a task that failed for good."""
        if sender is None or sender.app is not self._app or sender.request.is_eager:
            return
        properties, headers = self._known(sender.request, task_id)
        if WIRE not in properties:
            return
        about = {
            CAUGHT: "failed for good in a worker of Celery",
            RESULT: self._result(exception, einfo),
            STORY: self._stories.read(task_id, headers.get(STORY_NAME)),
        }
        self._reporter.died(found_of(properties[WIRE], about))

    def _known(self, context: Any, task_id: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return properties and headers of a task that runs, or whose process has died."""
        if context.id == task_id:
            return context.properties or {}, context.headers or {}
        request = self._requests.get(task_id)
        told = {} if request is None else request.request_dict
        return told.get("properties") or {}, told

    def _result(self, error: Any, einfo: Any) -> str:
        """Return the error as Celery's result backends have it."""
        kind = getattr(einfo, "type", None) or type(error)
        result = {
            "status": "FAILURE",
            "result": {"exc_type": kind.__name__, "exc_message": text_of(error)},
            "traceback": str(getattr(einfo, "traceback", "") or ""),
            "date_done": stamp(self._clock.now()),
        }
        return msgspec.json.encode(result).decode()

    def _succeeded(self, sender: Any = None, **_: Any) -> None:
        """Confirm the copy of a replay, and close a letter that has become needless."""
        if sender.app is not self._app or sender.request.is_eager:
            return
        request = sender.request
        headers, properties = request.headers or {}, request.properties or {}
        is_copy = REPLAY_OF in headers or PACKED in headers
        is_again = bool((request.delivery_info or {}).get("redelivered"))
        if (is_copy or is_again) and WIRE in properties:
            self._reporter.handled(found_of(properties[WIRE], {}))

    def _undeliverable(
        self, sender: Any = None, message: Any = None, exc: Any = None, **_: Any
    ) -> None:
        """File a task that no worker can run: it is not registered, or malformed."""
        if sender.app is not self._app or not (message.headers or {}).get("task"):
            return
        error = exc or ValueError("the worker rejected this message: its format is unknown")
        wire = wire_of(message, self._queue(message.delivery_info or {}))
        about = {CAUGHT: "rejected by a worker of Celery", RESULT: self._result(error, None)}
        self._reporter.died(found_of(wire, about))

    def _ending(self, **_: Any) -> None:
        self._reporter.close()

    def _queue(self, info: Mapping[str, Any]) -> str:
        """Return the queue that a message came from, as far as its delivery tells."""
        way = words(info.get("exchange")), words(info.get("routing_key"))
        known = self._queues.get(way)
        if known is None:
            queues = self._app.amqp.queues.values()
            names = (q.name for q in queues if q.exchange and _way(q) == way)
            known = self._queues[way] = next(names, way[1])
        return known


def _way(queue: Any) -> tuple[str, str]:
    return queue.exchange.name, queue.routing_key


def _label(app: Any) -> str:
    """Return the URL of the broker without its secrets."""
    conf = app.conf
    url = conf.broker_read_url or conf.broker_url or app.connection_for_read().as_uri()
    first = (url if isinstance(url, str) else url[0]).partition(";")[0]
    scheme, colon, rest = first.partition("://")
    return server_label(f"{_SCHEMES.get(scheme, scheme)}{colon}{rest}") if colon else ""
