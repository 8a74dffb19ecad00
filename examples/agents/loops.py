"""
The loops that answer requests.

They are workers of deadletter: what is received is settled in one safe order, the
letter first, then its copy in the dead-letter mailbox, the reply, and only then the
request is acknowledged. A process that dies in between repeats the step, and loses
nothing.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from deadletter import BrakePolicy, Delivery, Malformed
from deadletter.core.backoff import Backoff
from deadletter.runtime.registration import BRAKE, Registration, WorkerOptions
from deadletter.system import process_name

from .errors import SerializationError
from .mailbox import PostMailbox
from .message import Mailbox
from .policy import DLQPolicy, RuledPolicy
from .requests import EvalRequest, EvalResult, MainLoopRequest, MainLoopResult, Score, Session
from .ruling import ruling
from .running import Runnable

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
    """Answers a prompt; any function that does will do."""

    def __call__(self, prompt: str, session: Session) -> OutputT_co: ...


@dataclass(slots=True, frozen=True)
class MainLoopConfig:
    """How a loop works its mailbox; `backoff` is 60 s times deliveries, up to 900 s."""

    slots: int = 1  # requests at once
    visibility_timeout: float = 300.0
    time_limit: float | None = 900.0  # seconds that one attempt may take
    backoff: Backoff | None = None
    brake: BrakePolicy | None = BRAKE


class Loop(Runnable, ABC, Generic[BodyT, ResultT]):
    """Works one mailbox of requests, each answered with a result."""

    def __init__(
        self,
        *,
        requests: Mailbox[BodyT, ResultT],
        config: MainLoopConfig | None,
        dlq: DLQPolicy[BodyT, ResultT] | None,
    ) -> None:
        # Which mailboxes there are is for the Post to say; all of them are its own.
        self._requests = cast("PostMailbox[BodyT, ResultT]", requests)
        super().__init__(self._requests.post)
        self.config = config or MainLoopConfig()
        self._dlq = dlq
        self._policy = ruling(
            dlq, requests=self._requests, news=self.failed, backoff=self.config.backoff
        )
        self._policy.check_mailbox(requests.name)

    @abstractmethod
    def process(self, body: BodyT, *, delivery_count: int) -> ResultT:
        """Answer one request; whatever is raised is for the policy to judge."""

    @abstractmethod
    def failed(self, body: BodyT, error: str) -> ResultT:
        """What whoever asked is told when there will be no answer."""

    @property
    def member(self) -> str:
        return f"worker {self._requests.name}"

    def dead_mailboxes(self) -> list[PostMailbox[Any, Any]]:
        if self._dlq is None:
            return []
        routes = self._dlq.routes if isinstance(self._dlq, RuledPolicy) else {}
        boxes = (self._dlq.mailbox, *routes.values())
        return [cast("PostMailbox[Any, Any]", box) for box in boxes]

    def registration(
        self, *, visibility_timeout: float | None, wait_time_seconds: float
    ) -> Registration:
        """What deadletter needs to know to work this mailbox."""
        config = self.config
        lease = visibility_timeout
        return Registration(
            mailbox=self._requests.name,
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

    def _handle(self, delivery: Delivery) -> ResultT:
        try:
            body: BodyT = self._requests.decode(delivery.message.body)
        except SerializationError as error:
            raise Malformed(str(error)) from error
        self.heartbeat.beat()
        return self.process(body, delivery_count=delivery.charged)


class MainLoop(
    Loop[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]], Generic[UserRequestT, OutputT]
):
    """
    Answers requests with an agent.

    Override `prepare` to make a prompt of a request. Resources are handed to the
    adapter with each session.
    """

    def __init__(
        self,
        *,
        adapter: ProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]],
        resources: Mapping[str, Any] | None = None,
        config: MainLoopConfig | None = None,
        dlq: DLQPolicy[MainLoopRequest[UserRequestT], MainLoopResult[OutputT]] | None = None,
    ) -> None:
        super().__init__(requests=requests, config=config, dlq=dlq)
        self._adapter = adapter
        self._resources = resources or {}

    def prepare(self, request: UserRequestT) -> str:
        """The prompt for a request."""
        return str(request)

    def execute(
        self, request: MainLoopRequest[UserRequestT], *, delivery_count: int = 1
    ) -> tuple[OutputT, Session]:
        """Have it answered, here and now; what was done on the way comes with it."""
        session = Session(request.request_id, delivery_count, self._resources)
        return self._adapter(self.prepare(request.request), session), session

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
    """Tries samples with a main loop, under its conditions, and scores the outputs."""

    def __init__(
        self,
        *,
        loop: MainLoop[InputT, OutputT],
        evaluator: Evaluator[OutputT, ExpectedT] | SessionEvaluator[OutputT, ExpectedT],
        requests: Mailbox[EvalRequest[InputT, ExpectedT], EvalResult],
        dlq: DLQPolicy[EvalRequest[InputT, ExpectedT], EvalResult] | None = None,
    ) -> None:
        super().__init__(requests=requests, config=loop.config, dlq=dlq)
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
