"""The service put together: mailboxes, loops, and what watches over them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from deadletter import Linear

from .agent import Agent, Answer, Library, Question, QuestionLoop, score
from .consumer import DLQConsumer
from .errors import ContentPolicyViolation, RateLimitError, ValidationError
from .handlers import Alert
from .letters import DeadLetter
from .loops import EvalLoop, MainLoopConfig
from .mailbox import DLQ_TTL, PostMailbox
from .policy import DLQPolicy
from .post import Post
from .requests import EvalRequest, EvalResult, MainLoopRequest, MainLoopResult
from .running import LoopGroup
from .settings import Settings
from .telemetry import Telemetry

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, frozen=True)
class Mailboxes:
    """All that clients and loops have in common."""

    post: Post
    requests: PostMailbox[MainLoopRequest[Question], MainLoopResult[Answer]]
    dead_requests: PostMailbox[DeadLetter[MainLoopRequest[Question]], None]
    eval_requests: PostMailbox[EvalRequest[Question, str], EvalResult]
    dead_eval_requests: PostMailbox[DeadLetter[EvalRequest[Question, str]], None]

    def answers(self, name: str) -> PostMailbox[MainLoopResult[Answer], None]:
        return PostMailbox(name=name, client=self.post, body_type=MainLoopResult[Answer])

    def scores(self, name: str) -> PostMailbox[EvalResult, None]:
        return PostMailbox(name=name, client=self.post, body_type=EvalResult)


def mailboxes(post: Post) -> Mailboxes:
    """Requests and eval requests, each with its dead-letter mailbox."""

    def box(name: str, body_type: Any) -> PostMailbox[Any, Any]:
        return PostMailbox(name=name, client=post, body_type=body_type)

    def dead(name: str, body_type: Any) -> PostMailbox[Any, Any]:
        return PostMailbox(
            name=f"{name}-dlq", client=post, body_type=DeadLetter[body_type], default_ttl=DLQ_TTL
        )

    asked, tried = MainLoopRequest[Question], EvalRequest[Question, str]
    return Mailboxes(
        post=post,
        requests=box("requests", asked),
        dead_requests=dead("requests", asked),
        eval_requests=box("eval-requests", tried),
        dead_eval_requests=dead("eval-requests", tried),
    )


def consumers(boxes: Mailboxes, telemetry: Telemetry) -> list[DLQConsumer[Any]]:
    """
    Only the letters of the evaluation are consumed here: nobody replays a sample.

    Those of requests stay where they are until somebody has looked at them.
    """
    return [DLQConsumer(mailbox=boxes.dead_eval_requests, handler=Alert(telemetry))]


Consumers: TypeAlias = Callable[[Mailboxes, Telemetry], list[DLQConsumer[Any]]]
"""Who handles dead letters."""


def serve(settings: Settings, consume: Consumers = consumers) -> int:
    """Run until told to stop; log, and answer for health and metrics meanwhile."""
    telemetry = Telemetry()
    with Post(settings.url, office=settings.office, observe=telemetry) as post:
        boxes = mailboxes(post)
        telemetry.watch(boxes.dead_requests, boxes.dead_eval_requests)
        port = telemetry.serve(settings.metrics_port)
        print(f"metrics on port {port}", flush=True)
        group = loops(boxes, settings, consume(boxes, telemetry))
        return group.run(wait_time_seconds=settings.wait)


def loops(boxes: Mailboxes, settings: Settings, dead: list[DLQConsumer[Any]]) -> LoopGroup:
    """The agent, the evaluation, and the consumers of what dies of either."""
    config = MainLoopConfig(
        visibility_timeout=settings.visibility,
        backoff=Linear(settings.backoff_step, cap=settings.backoff_cap),
    )
    library = Library(settings.library, per_second=settings.lookups_per_second)
    main_loop = QuestionLoop(
        adapter=Agent(settings.all_tools()),
        requests=boxes.requests,
        resources={"library": library},
        config=config,
        dlq=_policy(boxes.dead_requests, settings),
    )
    eval_loop = EvalLoop(
        loop=main_loop,
        evaluator=score,
        requests=boxes.eval_requests,
        dlq=_policy(boxes.dead_eval_requests, settings),
    )
    return LoopGroup(
        loops=[main_loop, eval_loop, *dead],
        health_port=settings.health_port,
        watchdog_threshold=720.0,
    )


def _policy(dead: PostMailbox[DeadLetter[T], None], settings: Settings) -> DLQPolicy[T, Any]:
    return DLQPolicy(
        mailbox=dead,
        max_delivery_count=settings.max_deliveries,
        include_errors=frozenset({ValidationError, ContentPolicyViolation}),
        exclude_errors=frozenset({RateLimitError, TimeoutError}),
    )
