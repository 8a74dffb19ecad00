"""
Earlier attempts of a task, which travel with it from retry to retry.

A task that is retried may run next in another process on another machine. What its attempts
failed with goes with it, bounded and redacted like the letter, and signed by the office:
anybody can send a task, and nobody else can write its history.
"""

from typing import Final

from msgspec import structs

from deadletter.core.attempts import append, attempt_of
from deadletter.core.failure.capture import capture
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.signing import SIGNATURE_LENGTH
from deadletter.system import SystemClock, process_name

from .reporter import Reporter

STORY_NAME: Final = "dlq-story"
"""Name of the header or option with the earlier attempts"""

_LONGEST: Final = 8_192  # characters: brokers have limits
_LONGEST_TEXT: Final = 500
_LONGEST_STACK: Final = 1_000  # the end of it; only the last attempt has the whole


class Stories:
    """Reads and writes the earlier attempts of one task queue's tasks."""

    def __init__(self, reporter: Reporter, purpose: str) -> None:
        self._reporter = reporter
        self._purpose = purpose
        self._clock = SystemClock()

    def read(self, task_id: str, told: object) -> str:
        """Return the attempts that a task came with; empty if we did not write them."""
        if not isinstance(told, str) or not 0 < len(told) <= 2 * _LONGEST:
            return ""
        signature, story = told[:SIGNATURE_LENGTH], told[SIGNATURE_LENGTH + 1 :]
        keys = self._reporter.keys()
        if keys is None or not keys.verifies(signature, self._purpose, task_id, story):
            return ""
        return story

    def longer(self, task_id: str, story: str, error: BaseException, *, number: int) -> str:
        """Return a story with one more attempt, signed; empty while there is no office."""
        keys = self._reporter.keys()
        if keys is None:
            return ""
        attempt = attempt_of(
            capture(error, DEFAULT), number=number, at=self._clock.now(), worker=process_name()
        )
        text, stack = attempt.text[:_LONGEST_TEXT], attempt.stack[-_LONGEST_STACK:]
        story = _shortened(append(story, structs.replace(attempt, text=text, stack=stack)))
        return f"{keys.sign(self._purpose, task_id, story)} {story}"


def _shortened(story: str) -> str:
    """Return a story without its middle, if it is too long."""
    lines = story.split("\n")
    while len(lines) > 2 and sum(map(len, lines)) > _LONGEST:
        del lines[1]
    return "\n".join(lines)
