"""
The loops that answer requests.

A loop is a worker of deadletter. On failure it keeps the letter first, then sends its copy
to the dead-letter mailbox and the error reply, and acknowledges the request last. A crash
between two steps repeats them, and loses nothing.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, get_args, get_origin

from deadletter import PROFILES, BrakePolicy, Delivery, Malformed
from deadletter.core.backoff import Backoff
from deadletter.runtime.registration import Registration, WorkerOptions
from deadletter.system import process_name

from .backend import Backend
from .dead_letter import DeadLetter
from .errors import SerializationError
from .loop_group import Runnable
from .loop_requests import loop_requests
from .mailbox import BackendMailbox
from .mailbox_broker import MailboxBroker
from .message import Mailbox
from .policy import DLQPolicy, RuledPolicy
from .requests import (
    EvalRequest,
    EvalResult,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
    ResourceRegistry,
    Score,
    Session,
)
from .runtime_policy import runtime_policy

BodyT = TypeVar("BodyT")
ResultT = TypeVar("ResultT")
UserRequestT = TypeVar("UserRequestT")
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)
InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")

Evaluator: TypeAlias = Callable[[OutputT, ExpectedT], Score]
SessionEvaluator: TypeAlias = Callable[[OutputT, ExpectedT, Session], Score]


class ProviderAdapter(Protocol[OutputT_co]):
    """The way to a model provider: evaluates a prompt."""

    def evaluate(self, prompt: Any, *, session: Session) -> PromptResponse[OutputT_co]:
        """Return the response to a prompt; whatever it raises is put to the policy."""


class FunctionAdapter(Generic[OutputT]):
    """An adapter that calls a function with the prompt and the session."""

    def __init__(self, function: Callable[[str, Session], OutputT]) -> None:
        self._function = function

    def evaluate(self, prompt: Any, *, session: Session) -> PromptResponse[OutputT]:
        """Return what the function returns, as a response."""
        return PromptResponse(output=self._function(prompt, session))


@dataclass(slots=True, frozen=True)
class MainLoopConfig:
    """
    Settings of a loop.

    Attributes:
        slots: Requests processed at once.
        visibility_timeout: Seconds for which a request is leased without a sign of life.
        time_limit: Seconds that one attempt may take; None means no limit.
        backoff: Pause before a retry (default: 60 s times the delivery count, up to 900 s).
        brake: Thresholds of an outage: the loop then stops receiving, and dead-letters
            nothing until it is over (default: none, every failure counts).
        count_every_delivery: Count also deliveries that were not the fault of the request:
            returned at shutdown, or lost together with another request. A loop with a brake
            never counts them, nor those that failed in an outage.
        backend: The backend whose office keeps the letters of a mailbox that is not on a
            backend itself (default: one in memory).
    """

    slots: int = 1
    visibility_timeout: float = 300.0
    time_limit: float | None = 900.0
    backoff: Backoff | None = None
    brake: BrakePolicy | None = PROFILES["mailbox"].brake
    count_every_delivery: bool = True
    backend: Backend | None = None


class Loop(Runnable, ABC, Generic[BodyT, ResultT]):
    """Works one mailbox of requests, and answers each with a result."""

    def __init__(
        self,
        *,
        requests: Mailbox[BodyT, ResultT],
        config: MainLoopConfig | None,
        dlq: DLQPolicy[BodyT, ResultT] | None,
        body_type: Any,
    ) -> None:
        self._mailbox = requests
        self.config = config or MainLoopConfig()
        self._dlq = dlq
        self._requests = loop_requests(requests, self.dead_mailboxes())
        super().__init__(self._requests.backend, keeps_letters_in=self.config.backend)
        self._policy = runtime_policy(
            dlq,
            requests=self._requests,
            error_reply=self.failed,
            backoff=self.config.backoff,
            every_delivery=self.config.count_every_delivery and self.config.brake is None,
        )
        self._policy.check_mailbox(requests.name)
        _adopt(requests, body_type)
        for box in self.dead_mailboxes():
            _adopt(box, DeadLetter[body_type])

    @abstractmethod
    def process(self, body: BodyT, *, delivery_count: int) -> ResultT:
        """Return the result of one request; whatever it raises is put to the policy."""

    @abstractmethod
    def failed(self, body: BodyT, error: str) -> ResultT:
        """Return the result that reports an error."""

    @property
    def member(self) -> str:
        return f"worker {self._mailbox.name}"

    def mailboxes(self) -> list[Mailbox[Any, Any]]:
        return [self._mailbox, *self.dead_mailboxes()]

    def dead_mailboxes(self) -> list[Mailbox[Any, Any]]:
        if self._dlq is None:
            return []
        routes = self._dlq.routes if isinstance(self._dlq, RuledPolicy) else {}
        return [self._dlq.mailbox, *routes.values()]

    def attach(self, broker: MailboxBroker | None) -> None:
        self._requests.attach(broker)

    def registration(
        self, *, visibility_timeout: float | None, wait_time_seconds: float
    ) -> Registration:
        config = self.config
        lease = visibility_timeout
        return Registration(
            mailbox=self._mailbox.name,
            function=self._handle,
            options=WorkerOptions(
                policy=self._policy,
                slots=config.slots,
                lease=config.visibility_timeout if lease is None else lease,
                time_limit=config.time_limit,
                wait=wait_time_seconds,
                brake=config.brake,
                consumer=type(self).__qualname__,
                worker=process_name(),
            ),
        )

    def _handle(self, delivery: Delivery) -> object:
        try:
            body: BodyT = self._requests.body(delivery)
        except SerializationError as error:
            raise Malformed(str(error)) from error
        self.heartbeat.beat()
        result = self.process(body, delivery_count=self._policy.count(delivery))
        return self._requests.answer(delivery, result)


class MainLoop(
    Loop[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], Generic[UserRequestT, OutputT]
):
    """
    Answers requests with an agent.

    Override `prepare` to make a prompt of a request. The adapter gets the resources with
    each session.
    """

    def __init__(
        self,
        *,
        adapter: ProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]],
        resources: ResourceRegistry | None = None,
        config: MainLoopConfig | None = None,
        dlq: DLQPolicy[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None = None,
    ) -> None:
        self.request_type = _type_argument(type(self), MainLoop)
        body_type: Any = MainLoopRequest
        super().__init__(
            requests=requests, config=config, dlq=dlq, body_type=body_type[self.request_type]
        )
        self._adapter = adapter
        self._resources = resources or {}

    def prepare(self, request: UserRequestT) -> Any:
        """Return the prompt for a request (default: its text)."""
        return str(request)

    def execute(
        self, request: MainLoopRequest[UserRequestT], *, delivery_count: int = 1
    ) -> tuple[OutputT, Session]:
        """Evaluate a request without a mailbox; return the output and the session."""
        session = Session(request.request_id, delivery_count, self._resources)
        response = self._adapter.evaluate(self.prepare(request.request), session=session)
        return cast("OutputT", response.output), session

    def process(
        self, body: MainLoopRequest[UserRequestT], *, delivery_count: int
    ) -> MainLoopResult[OutputT]:
        output, _ = self.execute(body, delivery_count=delivery_count)
        return MainLoopResult(body.request_id, output)

    def failed(self, body: MainLoopRequest[UserRequestT], error: str) -> MainLoopResult[OutputT]:
        return MainLoopResult(body.request_id, error=error)


class EvalLoop(
    Loop[EvalRequest[InputT, ExpectedT], EvalResult], Generic[InputT, OutputT, ExpectedT]
):
    """Runs samples through a main loop, and scores the outputs."""

    def __init__(
        self,
        *,
        loop: MainLoop[InputT, OutputT],
        evaluator: Evaluator[OutputT, ExpectedT] | SessionEvaluator[OutputT, ExpectedT],
        requests: Mailbox[EvalRequest[InputT, ExpectedT], EvalResult],
        dlq: DLQPolicy[EvalRequest[InputT, ExpectedT], EvalResult] | None = None,
    ) -> None:
        body_type: Any = EvalRequest
        super().__init__(
            requests=requests,
            config=loop.config,
            dlq=dlq,
            body_type=body_type[loop.request_type, Any],
        )
        self._loop = loop
        self._evaluator = evaluator
        self._wants_session = len(inspect.signature(evaluator).parameters) > 2

    def process(self, body: EvalRequest[InputT, ExpectedT], *, delivery_count: int) -> EvalResult:
        sample = body.sample
        began = perf_counter()
        asked = MainLoopRequest(sample.input, body.request_id)
        output, session = self._loop.execute(asked, delivery_count=delivery_count)
        taken = (perf_counter() - began) * 1000
        given = (output, sample.expected, *([session] if self._wants_session else []))
        score = cast("Callable[..., Score]", self._evaluator)(*given)
        return EvalResult(body.request_id, sample.id, score, round(taken, 3))

    def failed(self, body: EvalRequest[InputT, ExpectedT], error: str) -> EvalResult:
        return EvalResult(body.request_id, body.sample.id, error=error)


def _adopt(box: Mailbox[Any, Any], body_type: Any) -> None:
    if isinstance(box, BackendMailbox):
        box.adopt(body_type)


def _type_argument(kind: type, generic: type) -> Any:
    """Return the first type that a class gives a generic base; Any if it gives none."""
    for base in kind.__mro__:
        for given in getattr(base, "__orig_bases__", ()):
            if get_origin(given) is generic:
                first = get_args(given)[0]
                return Any if isinstance(first, TypeVar) else first
    return Any
