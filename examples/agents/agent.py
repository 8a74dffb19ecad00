"""A small agent: rules choose a tool, the tool answers. No model is asked."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import ContentPolicyViolation, ProviderError, ValidationError
from .loops import MainLoop
from .requests import Score, Session, ToolCall
from .tools import TOOLS, Tool

_REFUSED: Final = ("password of", "steal")


@dataclass(slots=True, frozen=True)
class Question:
    """What somebody wants to know."""

    text: str


@dataclass(slots=True, frozen=True)
class Answer:
    """What the agent found out, and how."""

    text: str
    tool: str


class Agent:
    """Answers a prompt with the first tool that is for it."""

    def __init__(self, tools: Sequence[Tool] = TOOLS) -> None:
        self._tools = tools

    def __call__(self, prompt: str, session: Session) -> Answer:
        if any(word in prompt for word in _REFUSED):
            raise ContentPolicyViolation(f"nobody here answers {prompt!r}")
        for tool in self._tools:
            if found := tool.pattern.fullmatch(prompt):
                text = tool.use(found, session)
                session.calls.append(ToolCall(tool.name, prompt, text))
                return Answer(text, tool.name)
        raise ValidationError(f"no tool is for {prompt!r}")


class QuestionLoop(MainLoop[Question, Answer]):
    """Answers questions."""

    def prepare(self, request: Question) -> str:
        return " ".join(request.text.lower().split())


class Library:
    """Facts in a JSON file, read anew each time; only so many questions a second."""

    def __init__(self, path: Path, *, per_second: float) -> None:
        self._path = path
        self._pause = 1.0 / per_second
        self._next = 0.0

    def may_ask(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause
        return True

    def find(self, topic: str) -> str | None:
        try:
            facts: dict[str, str] = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ProviderError(f"the library cannot be read: {error}") from error
        return facts.get(topic)


def score(output: Answer, expected: str, session: Session) -> Score:
    """Whether the answer holds what was expected, and how it was found."""
    passed = expected.lower() in output.text.lower()
    used = ", ".join(call.tool for call in session.calls)
    return Score(float(passed), passed, f"{output.text!r} by {used}")
