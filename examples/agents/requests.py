"""What is asked of the loops, and what they answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")
InputT = TypeVar("InputT")
ExpectedT = TypeVar("ExpectedT")


@dataclass(slots=True, frozen=True)
class MainLoopRequest(Generic[RequestT]):
    """Something to be done; the id stays the same however often it is tried."""

    request: RequestT
    request_id: UUID = field(default_factory=uuid4)


@dataclass(slots=True, frozen=True)
class MainLoopResult(Generic[OutputT]):
    """What came of it: an output, or the error it ended with for good."""

    request_id: UUID | None = None
    output: OutputT | None = None
    error: str | None = None

    @property
    def success(self) -> bool:
        return self.error is None


@dataclass(slots=True, frozen=True)
class Sample(Generic[InputT, ExpectedT]):
    """A line of a dataset."""

    id: str
    input: InputT
    expected: ExpectedT


@dataclass(slots=True, frozen=True)
class EvalRequest(Generic[InputT, ExpectedT]):
    """A sample to be tried and scored."""

    sample: Sample[InputT, ExpectedT]
    request_id: UUID = field(default_factory=uuid4)


@dataclass(slots=True, frozen=True)
class Score:
    """How well an output did, from 0 to 1."""

    value: float
    passed: bool
    reason: str = ""


@dataclass(slots=True, frozen=True)
class EvalResult:
    """What a sample scored, or why it could not be tried."""

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
    """A tool that was used."""

    tool: str
    given: str
    result: str


@dataclass(slots=True)
class Session:
    """One run of an agent: what it may use, and what it did."""

    request_id: UUID
    delivery_count: int = 1
    resources: Mapping[str, Any] = field(default_factory=dict)
    calls: list[ToolCall] = field(default_factory=list)
