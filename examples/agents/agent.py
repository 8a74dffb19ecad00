"""A small agent: rules choose a tool, and the tool answers. It uses no model."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import ContentPolicyViolation, ProviderError, ValidationError
from .loops import MainLoop
from .requests import PromptResponse, Score, Session, ToolCall
from .tools import TOOLS, Tool

_REFUSED: Final = ("password of", "steal")


@dataclass(slots=True, frozen=True)
class Question:
    """A question to the agent."""

    text: str


@dataclass(slots=True, frozen=True)
class Answer:
    """An answer, and the tool it came from."""

    text: str
    tool: str


class RuleAdapter:
    """An adapter that answers a prompt with the first tool whose pattern matches."""

    def __init__(self, tools: Sequence[Tool] = TOOLS) -> None:
        self._tools = tools

    def evaluate(self, prompt: str, *, session: Session) -> PromptResponse[Answer]:
        """Return the answer to a prompt."""
        if any(word in prompt for word in _REFUSED):
            raise ContentPolicyViolation(f"the content policy does not allow {prompt!r}")
        for tool in self._tools:
            if found := tool.pattern.fullmatch(prompt):
                text = tool.use(found, session)
                session.calls.append(ToolCall(tool.name, prompt, text))
                return PromptResponse(Answer(text, tool.name), text)
        raise ValidationError(f"no tool can answer {prompt!r}")


class QuestionLoop(MainLoop[Question, Answer]):
    """Answers questions."""

    def prepare(self, request: Question) -> str:
        """Return the question in lower case, without extra spaces."""
        return " ".join(request.text.lower().split())


class Library:
    """Facts in a JSON file, which is read each time; lookups per second are limited."""

    def __init__(self, path: Path, *, per_second: float) -> None:
        self._path = path
        self._pause = 1.0 / per_second
        self._next = 0.0

    def may_ask(self) -> bool:
        """Return whether another lookup is allowed now, and count it."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True

    def find(self, topic: str) -> str | None:
        """Return the fact about a topic. Raises ProviderError if the file is unreadable."""
        try:
            facts: dict[str, str] = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ProviderError(f"could not read the library: {error}") from error
        return facts.get(topic)


def score(output: Answer, expected: str, session: Session) -> Score:
    """Return the score of an answer: passed if it contains the expected text."""
    passed = expected.lower() in output.text.lower()
    used = ", ".join(call.tool for call in session.calls)
    return Score(float(passed), passed, f"{output.text!r} by {used}")
