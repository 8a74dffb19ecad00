"""Handlers for dead-letter mailboxes: tell somebody, never fail, send back by rule."""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import structlog

from deadletter import RetryLater

from .letters import DeadLetter
from .mailbox import PostMailbox
from .message import Mailbox
from .replay import Predicate, Went, send_back
from .resolvers import MailboxResolver
from .telemetry import Telemetry

Handler: TypeAlias = Callable[[DeadLetter[Any]], object]
Page: TypeAlias = Callable[[str, str], object]
"""Wakes somebody: a summary and a severity."""

log = structlog.get_logger("agents.dlq")


class Alert:
    """Logs and counts every letter; pages for those that are critical."""

    def __init__(
        self,
        telemetry: Telemetry | None = None,
        *,
        is_critical: Predicate = lambda letter: False,
        page: Page = lambda summary, severity: None,
    ) -> None:
        self._telemetry = telemetry
        self._is_critical = is_critical
        self._page = page

    def __call__(self, dead_letter: DeadLetter[Any]) -> str:
        log.error(
            "Request dead-lettered",
            message_id=dead_letter.message_id,
            request_id=str(dead_letter.request_id),
            error_type=dead_letter.last_error_type,
            error=dead_letter.last_error,
            delivery_count=dead_letter.delivery_count,
            source=dead_letter.source_mailbox,
        )
        if self._telemetry is not None:
            self._telemetry.count_alert(
                source=dead_letter.source_mailbox, error_type=dead_letter.last_error_type
            )
        if self._is_critical(dead_letter):
            self._page(f"Critical request dead-lettered: {dead_letter.request_id}", "high")
        return "alerted"


def safe(handler: Handler) -> Handler:
    """The handler, made never to raise: what it fails on is logged and discarded."""

    def guarded(dead_letter: DeadLetter[Any]) -> object:
        try:
            return handler(dead_letter)
        except Exception as error:
            log.exception(
                "Failed to process dead letter, discarding",
                message_id=dead_letter.message_id,
                error=str(error),
            )
            return "discarded"

    return guarded


class ReplayWhen:
    """
    Sends letters back by itself: those that match, `after` so many seconds.

    What does not match, and what came back too often, goes to the other handler.
    """

    def __init__(
        self,
        *,
        source: Mailbox[Any, Any],
        reply_resolver: MailboxResolver,
        predicate: Predicate,
        after: float,
        otherwise: Handler,
    ) -> None:
        self._source = cast("PostMailbox[Any, Any]", source)
        self._resolver = reply_resolver
        self._predicate = predicate
        self._after = after
        self._otherwise = otherwise

    def __call__(self, dead_letter: DeadLetter[Any]) -> object:
        if not self._predicate(dead_letter):
            return self._otherwise(dead_letter)
        now = self._source.post.clock.now()
        age = (now - dead_letter.dead_lettered_at).total_seconds()
        if age < self._after:
            raise RetryLater(self._after - age, "its time to be replayed has not come")
        went = send_back(dead_letter, source=self._source, reply_resolver=self._resolver)
        return self._otherwise(dead_letter) if went is Went.HELD else "replayed"
