"""Requests to the loops, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID, uuid4

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)
InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")

ResourceRegistry: TypeAlias = Mapping[Any, Any]
"""What a loop hands to its adapter with each session, by name or by type."""


@dataclass(slots=True, frozen=True)
class MainLoopRequest(Generic[RequestT]):
    """A request; its id stays the same over all attempts."""

    request: RequestT
    request_id: UUID = field(default_factory=uuid4)


@dataclass(slots=True, frozen=True)
class MainLoopResult(Generic[OutputT]):
    """The result of a request: an output, or the error that ended it."""

    request_id: UUID | None = None
    output: OutputT | None = None
    error: str | None = None

    @property
    def success(self) -> bool:
        return self.error is None


@dataclass(slots=True, frozen=True)
class PromptResponse(Generic[OutputT_co]):
    """The response of a provider to a prompt."""

    output: OutputT_co | None = None
    text: str | None = None


@dataclass(slots=True, frozen=True)
class Sample(Generic[InputT, ExpectedT]):
    """One line of a dataset."""

    id: str
    input: InputT
    expected: ExpectedT


@dataclass(slots=True, frozen=True)
class EvalRequest(Generic[InputT, ExpectedT]):
    """A sample to be run and scored."""

    sample: Sample[InputT, ExpectedT]
    request_id: UUID = field(default_factory=uuid4)


@dataclass(slots=True, frozen=True)
class Score:
    """The score of an output, from 0 to 1."""

    value: float
    passed: bool
    reason: str = ""


@dataclass(slots=True, frozen=True)
class EvalResult:
    """The score of a sample, or the error that ended its run."""

    request_id: UUID | None = None
    sample_id: str = ""
    score: Score | None = None
    latency_ms: float = 0.0
    error: str | None = None

    @property
    def success(self) -> bool:
        return self.error is None


@dataclass(slots=True, frozen=True)
class ToolCall:
    """One use of a tool."""

    tool: str
    given: str
    result: str


@dataclass(slots=True)
class Session:
    """One run of an agent: its resources, and the tools it used."""

    request_id: UUID
    delivery_count: int = 1
    resources: ResourceRegistry = field(default_factory=dict)
    calls: list[ToolCall] = field(default_factory=list)
