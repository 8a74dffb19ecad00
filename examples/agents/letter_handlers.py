"""Handlers for dead-letter mailboxes: alerts, handlers that never fail, replay by rule."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import structlog

from deadletter import RetryLater

from .dead_letter import DeadLetter
from .mailbox import BackendMailbox
from .message import Mailbox
from .replay import Predicate, ReplayOutcome, send_back
from .resolvers import MailboxResolver
from .telemetry import Telemetry

Handler: TypeAlias = Callable[[DeadLetter[Any]], object]
Page: TypeAlias = Callable[[str, str], object]
"""Pages the person on call, with a summary and a severity."""

log = structlog.get_logger("agents.dlq")


class Alert:
    """A handler that logs and counts every letter, and pages for critical ones."""

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
        return "alert"


def safe(handler: Handler) -> Handler:
    """Return a handler that never raises: it logs and discards the letters it fails on."""

    def guarded(dead_letter: DeadLetter[Any]) -> object:
        try:
            return handler(dead_letter)
        except Exception as error:
            log.exception(
                "Failed to process dead letter, discarding",
                message_id=dead_letter.message_id,
                error=str(error),
            )
            return "discard"

    return guarded


class ReplayWhen:
    """
    A handler that replays letters that match, `after` this many seconds.

    Letters that do not match, or were replayed too often, go to the `otherwise` handler.
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
        self._source = source
        self._resolver = reply_resolver
        self._predicate = predicate
        self._after = after
        self._otherwise = otherwise

    def __call__(self, dead_letter: DeadLetter[Any]) -> object:
        if not self._predicate(dead_letter):
            return self._otherwise(dead_letter)
        age = (self._now() - dead_letter.dead_lettered_at).total_seconds()
        if age < self._after:
            raise RetryLater(self._after - age, "it is not yet time to replay the letter")
        outcome = send_back(dead_letter, source=self._source, reply_resolver=self._resolver)
        return self._otherwise(dead_letter) if outcome is ReplayOutcome.HELD else "replay"

    def _now(self) -> datetime:
        source = self._source
        return (
            source.backend.clock.now() if isinstance(source, BackendMailbox) else datetime.now(UTC)
        )
