"""The service: its mailboxes, its loops, retention, health checks and metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from deadletter import Linear

from .agent import Answer, Library, Question, QuestionLoop, RuleAdapter, score
from .backend import Backend
from .dead_letter import DeadLetter
from .dlq_consumer import DLQConsumer
from .errors import ContentPolicyViolation, MailboxConnectionError, RateLimitError, ValidationError
from .letter_handlers import Alert
from .loop_group import LoopGroup
from .loops import EvalLoop, MainLoopConfig
from .mailbox import DLQ_TTL, BackendMailbox
from .policy import DLQPolicy
from .requests import EvalRequest, EvalResult, MainLoopRequest, MainLoopResult
from .retention import RetentionLoop
from .settings import Settings
from .telemetry import Telemetry

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, frozen=True)
class Mailboxes:
    """The mailboxes that clients and loops share."""

    backend: Backend
    requests: BackendMailbox[MainLoopRequest[Question], MainLoopResult[Answer]]
    dead_requests: BackendMailbox[DeadLetter[MainLoopRequest[Question]], None]
    eval_requests: BackendMailbox[EvalRequest[Question, str], EvalResult]
    dead_eval_requests: BackendMailbox[DeadLetter[EvalRequest[Question, str]], None]

    def answers(self, name: str) -> BackendMailbox[MainLoopResult[Answer], None]:
        return BackendMailbox(name=name, client=self.backend, body_type=MainLoopResult[Answer])

    def scores(self, name: str) -> BackendMailbox[EvalResult, None]:
        return BackendMailbox(name=name, client=self.backend, body_type=EvalResult)


def mailboxes(backend: Backend) -> Mailboxes:
    """Return the mailboxes of requests and eval requests, each with its dead-letter mailbox."""

    def box(name: str, body_type: Any) -> BackendMailbox[Any, Any]:
        return BackendMailbox(name=name, client=backend, body_type=body_type)

    def dead(name: str, body_type: Any) -> BackendMailbox[Any, Any]:
        return BackendMailbox(
            name=f"{name}-dlq", client=backend, body_type=DeadLetter[body_type], default_ttl=DLQ_TTL
        )

    asked, tried = MainLoopRequest[Question], EvalRequest[Question, str]
    return Mailboxes(
        backend=backend,
        requests=box("requests", asked),
        dead_requests=dead("requests", asked),
        eval_requests=box("eval-requests", tried),
        dead_eval_requests=dead("eval-requests", tried),
    )


def consumers(boxes: Mailboxes, telemetry: Telemetry) -> list[DLQConsumer[Any]]:
    """
    Return consumers that raise an alert for every dead letter.

    The office keeps the letters until a person has dealt with them.
    """
    alert = Alert(telemetry)
    return [
        DLQConsumer(mailbox=boxes.dead_requests, handler=alert),
        DLQConsumer(mailbox=boxes.dead_eval_requests, handler=alert),
    ]


Consumers: TypeAlias = Callable[[Mailboxes, Telemetry], list[DLQConsumer[Any]]]
"""Makes the consumers of the dead-letter mailboxes."""


def serve(settings: Settings, consume: Consumers = consumers) -> int:
    """Run until told to stop; serve health checks and metrics meanwhile."""
    telemetry = Telemetry()
    with Backend(settings.url, office=settings.office, observe=telemetry) as backend:
        boxes = mailboxes(backend)
        telemetry.watch(boxes.dead_requests, boxes.dead_eval_requests)
        port = telemetry.serve(settings.metrics_port)
        print(f"metrics on port {port}", flush=True)
        group = loops(boxes, settings, consume(boxes, telemetry))
        return group.run(wait_time_seconds=settings.wait)


def loops(boxes: Mailboxes, settings: Settings, dead: list[DLQConsumer[Any]]) -> LoopGroup:
    """Return the loops of the service: agent, evaluation, consumers, and retention."""
    config = MainLoopConfig(
        visibility_timeout=settings.visibility,
        backoff=Linear(settings.backoff_step, cap=settings.backoff_cap),
    )
    library = Library(settings.library, per_second=settings.lookups_per_second)
    main_loop = QuestionLoop(
        adapter=RuleAdapter(settings.all_tools()),
        requests=boxes.requests,
        resources={"library": library},
        config=config,
        dlq=service_policy(boxes.dead_requests, settings),
    )
    eval_loop = EvalLoop(
        loop=main_loop,
        evaluator=score,
        requests=boxes.eval_requests,
        dlq=service_policy(boxes.dead_eval_requests, settings),
    )
    return LoopGroup(
        loops=[main_loop, eval_loop, *dead],
        health_port=settings.health_port,
        watchdog_threshold=720.0,
        background=[
            RetentionLoop(
                boxes.backend,
                boxes.dead_requests,
                boxes.dead_eval_requests,
                every=settings.retention_interval,
            )
        ],
    )


def service_policy(
    dead: BackendMailbox[DeadLetter[T], None], settings: Settings
) -> DLQPolicy[T, Any]:
    """Return the policy of the loops, with a dead-letter mailbox."""
    return DLQPolicy(
        mailbox=dead,
        max_delivery_count=settings.max_deliveries,
        include_errors=frozenset({ValidationError, ContentPolicyViolation}),
        exclude_errors=frozenset({MailboxConnectionError, RateLimitError, TimeoutError}),
    )
