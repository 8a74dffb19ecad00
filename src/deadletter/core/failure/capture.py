"""
Capture of exceptions as failures that are safe to keep.

Whatever the exception is or does, its text is bounded, escaped and redacted, its stack has at
most 8 KB, and nothing is raised.
"""

import dis
import os
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from types import CodeType, TracebackType
from typing import Final

from msgspec import Struct

from deadletter.core.failure import Failure, Verdict
from deadletter.core.message import marked
from deadletter.core.redact import redact
from deadletter.core.text import cut, plain, plain_line

from .classify import ErrorClassifier
from .clues import is_alone, lineage, qualified_name, text_of

# Frames are rendered from names alone: `traceback` takes twenty times as long, and
# reads source files, which may have changed since.

_FIRST: Final = 5
_LAST: Final = 15
_STDLIB: Final = os.__file__.replace("\\", "/").rpartition("/")[0] + "/"
_OURS: Final = __file__.replace("\\", "/").rpartition("/core/")[0] + "/"
_AROUND: Final = (_OURS + "runtime/", _OURS + "harness/")
_MOST_ORIGINS: Final = 1024  # cached
_NAMES: Final = frozenset((*dis.haslocal, *dis.hasname, *dis.hasfree))
_LONG: Final = 60  # frames; origins with more are not cached
_origins: Final[dict[tuple[int, ...], tuple[list[CodeType], str, str]]] = {}
_traceback: Final = BaseException.__dict__["__traceback__"].__get__


def origin(error: BaseException) -> tuple[str, str]:
    """
    Return the frames of an error, one a line, and the frame that it is attributed to.

    That frame is named as module:function#line, see `line_digest`. Most errors come from a
    place that earlier errors came from, so both are cached.
    """
    codes: list[CodeType] = []
    places: list[int] = []
    trace: TracebackType | None = _traceback(error)
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        places.append(trace.tb_lasti)
        trace = trace.tb_next
    if len(codes) > _LONG:
        return _told(error)
    # By id, since hashing code is slow. The cache keeps the code, so ids stay valid.
    key = (*map(id, codes), *places)
    known = _origins.get(key)
    if known is None:
        if len(_origins) >= _MOST_ORIGINS:
            _origins.clear()
        known = _origins[key] = (codes, *_told(error))
    return known[1], known[2]


def _told(error: BaseException) -> tuple[str, str]:
    frames = _frames(error)
    return _rendered(frames), _top(frames)


def _frames(error: BaseException) -> list[TracebackType]:
    """
    Return the frames of an error, outermost first.

    Our own frames around the handler are left out, unless there are no others.
    """
    found: list[TracebackType] = []
    trace: TracebackType | None = _traceback(error)
    while trace is not None:
        if found or trace.tb_next is None or not _is_ours(trace):
            found.append(trace)
        trace = trace.tb_next
    return found


def _rendered(frames: list[TracebackType]) -> str:
    """Return one line per frame; of many, only the first and the last."""
    if len(frames) <= _FIRST + _LAST:
        return "\n".join([_line(frame) for frame in frames])
    left_out = f"  ... {len(frames) - _FIRST - _LAST} frames left out ..."
    first = [_line(frame) for frame in frames[:_FIRST]]
    last = [_line(frame) for frame in frames[-_LAST:]]
    return "\n".join([*first, left_out, *last])


def _top(frames: list[TracebackType]) -> str:
    """
    Return the innermost frame of the application, as module:function#line.

    Frames of libraries, of Python and of this package do not count. Without others, it is the
    innermost frame of a library or of Python; empty if all are our own.
    """
    for trace in reversed(frames):
        code = trace.tb_frame.f_code
        if is_application(code.co_filename):
            return _name(trace) + line_digest(code, trace.tb_lineno)
    outside = [one for one in frames if not one.tb_frame.f_code.co_filename.startswith(_OURS)]
    return _name(outside[-1]) if outside else ""


def line_digest(code: CodeType, line: int) -> str:
    """
    Return a hash of a line of code that stays the same when the line moves: #3f09ab.

    It covers the names, constants and operators of the line, not its text: the file may have
    changed since it was loaded, or be missing. Comments and white space do not count. Empty if
    nothing is known of the line.
    """
    said: list[str] = []
    for one in dis.get_instructions(code):
        if one.positions is not None and one.positions.lineno == line:
            said += _operands(one)
    if not said:
        return ""
    told = "\n".join(said).encode("utf-8", "surrogatepass")
    return f"#{blake2b(told, digest_size=3).hexdigest()}"


def _operands(instruction: dis.Instruction) -> list[str]:
    code, value = instruction.opcode, instruction.argval
    if code in dis.hasconst:
        return [_constant(value)] if value is not None else []
    if code in _NAMES:
        return [str(one) for one in (value if isinstance(value, tuple) else (value,))]
    is_operator = instruction.opname in ("BINARY_OP", "COMPARE_OP")
    return [instruction.argrepr] if is_operator else []


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return value.co_qualname  # its repr contains an address
    if isinstance(value, frozenset):
        return repr(sorted(map(repr, value)))  # its order changes with each process
    return repr(value)


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_AROUND)


def _line(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code
    before, after = _place(code.co_filename, code.co_qualname)
    return f"{before}{trace.tb_lineno}{after}"


def _name(trace: TracebackType) -> str:
    frame = trace.tb_frame
    module = frame.f_globals.get("__name__")
    known = module if type(module) is str else "?"
    return _named(known, frame.f_code.co_qualname)


@lru_cache(maxsize=4096)
def _named(module: str, function: str) -> str:
    return cut(plain_line(f"{module}:{function}"), 300)


@lru_cache(maxsize=4096)
def _place(file: str, function: str) -> tuple[str, str]:
    # Keep the end of a long path.
    path = redact(plain_line(file if len(file) <= 160 else f"…{file[-159:]}"))
    return f'  File "{path}", line ', f", in {plain_line(cut(function, 80))}"


@lru_cache(maxsize=4096)
def is_application(file: str) -> bool:
    """Return whether a file is the application's: not Python's, a library's or ours."""
    path = file.replace("\\", "/")
    return not (
        path.startswith((_STDLIB, _OURS, "<frozen "))
        or "/site-packages/" in path
        or "/dist-packages/" in path
    )


TEXT_LIMIT: Final = 2_000  # characters
STACK_LIMIT: Final = 8_192  # bytes of UTF-8

_CAUSE_LIMIT: Final = 300
_MARGIN: Final = 1_000  # enough to recognise a secret at the limit
_MOST_TYPES: Final = 1024  # cached
_types: Final[dict[int, tuple[type, str]]] = {}
_attributes: Final = BaseException.__dict__["__dict__"].__get__


class RemoteTraceback(Struct, frozen=True):
    """The traceback and type of an error raised in another process, as its `dlq_traceback`."""

    stack: str
    frame: str


def capture(
    error: BaseException, classifier: ErrorClassifier, now: datetime | None = None
) -> Failure:
    """Return the classified failure of an error. Never raises."""
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
    told = _attributes(error).get("dlq_traceback")
    if type(told) is RemoteTraceback:
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
    # By id: a metaclass may prevent hashing and comparing. The cache keeps the class,
    # so ids stay valid.
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
    """Return a foreign text, bounded, escaped and redacted."""
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
