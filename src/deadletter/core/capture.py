"""
From an exception to a Failure that is safe to keep.

Whatever the exception is or does: its text is bounded, escaped and redacted, its
stack is at most 8 KB, and nothing is raised.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct

from .classify import ErrorClassifier
from .failure import Failure, Verdict
from .plain import cut, plain, plain_line
from .raised import is_alone, lineage, qualified_name, text_of
from .redact import redact
from .stack import origin
from .tracing import marked

TEXT_LIMIT: Final = 2_000  # characters
STACK_LIMIT: Final = 8_192  # bytes of UTF-8

_CAUSE_LIMIT: Final = 300
_MARGIN: Final = 1_000  # a secret at the limit must be seen whole to be known as one
_MOST_TYPES: Final = 1024  # a program has far fewer kinds of errors
_types: Final[dict[int, tuple[type, str]]] = {}
_attributes: Final = BaseException.__dict__["__dict__"].__get__


class Told(Struct, frozen=True):
    """What an error raised in another process brings along, as its `dlq_told`."""

    stack: str
    frame: str


def capture(
    error: BaseException, classifier: ErrorClassifier, now: datetime | None = None
) -> Failure:
    """What went wrong, classified. Never raises, whatever the exception does."""
    verdict = classifier.classify(error, now)
    try:
        return _described(error, verdict)
    except BaseException:  # noqa: BLE001 -- better a poor description than none
        return Failure(
            trouble=verdict.trouble,
            code=verdict.code,
            error_type="",
            text="an error that cannot be described",
            rule=verdict.rule,
            retry_after=verdict.retry_after,
        )


def _described(error: BaseException, verdict: Verdict) -> Failure:
    told = _attributes(error).get("dlq_told")
    if type(told) is Told:
        stack, frame = told.stack, told.frame
    else:
        own, frame = origin(error)
        stack = _stack(error, own)
    return Failure(
        trouble=verdict.trouble,
        code=verdict.code,
        error_type=_type_of(error),
        text=_text_of(error, TEXT_LIMIT),
        stack=_bounded(stack),
        frame=frame,
        rule=verdict.rule,
        retry_after=verdict.retry_after,
        trace=marked(error),
        broken=verdict.broken,
    )


def _type_of(error: BaseException) -> str:
    # By id: a metaclass may make a class impossible to hash or compare. The class is
    # kept, so that its id stays its own.
    cls = type(error)
    known = _types.get(id(cls))
    if known is None:
        if len(_types) >= _MOST_TYPES:
            _types.clear()
        known = _types[id(cls)] = (cls, plain_line(qualified_name(cls)))
    return known[1]


def _text_of(error: BaseException, limit: int) -> str:
    return safe_text(text_of(error, limit + _MARGIN), limit)


def safe_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return what somebody else wrote, bounded, escaped and redacted."""
    return cut(redact(plain(text[: limit + _MARGIN])), limit)


def _stack(error: BaseException, own: str) -> str:
    if is_alone(error):
        return own
    story = [own] if own else []
    size = len(own)
    for how, behind in lineage(error):
        text = plain_line(_text_of(behind, _CAUSE_LIMIT))
        story.append(f"{how} {_type_of(behind)}: {text}")
        story.append(origin(behind)[0])
        size += len(story[-1]) + len(story[-2])
        if size > STACK_LIMIT:
            break
    return "\n".join(line for line in story if line)


def _bounded(stack: str) -> str:
    if len(stack) * 4 <= STACK_LIMIT:
        return stack
    encoded = stack.encode()
    if len(encoded) <= STACK_LIMIT:
        return stack
    return encoded[: STACK_LIMIT - 3].decode(errors="ignore") + "…"
