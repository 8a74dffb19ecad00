"""
Protocol between a worker and the process that runs its handler.

Frames over a socket of their own: four bytes of length, then one value as msgpack.
Nothing else travels there, so a handler may print what it likes.
"""

import sys
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import DeadLetterError, Ignore, Signal
from deadletter.core.failure import Ack, Decision, Trouble
from deadletter.core.failure.capture import RemoteTraceback, capture
from deadletter.core.failure.classify import ErrorClassifier
from deadletter.core.failure.clues import ancestors, lineage, qualified_name, text_of
from deadletter.core.message import Delivery

from .deliveries import HandlerNote

Plain: TypeAlias = str | int | float | bool | None

LENGTH: Final = 4
LARGEST: Final = 256 * 1024 * 1024  # bytes of a frame


class Hello(Struct, frozen=True, tag="hello"):
    """The first frame: the handler to run, and its limits."""

    target: str
    path: tuple[str, ...]  # where modules are looked for
    memory_limit: int | None


class Ask(Struct, frozen=True, tag="ask"):
    """Run the handler on this delivery."""

    delivery: Delivery
    wants_result: bool = False


class Ready(Struct, frozen=True, tag="ready"):
    """The handler is loaded."""


class UnusableHandler(Struct, frozen=True, tag="unfit"):
    """The handler cannot be run as it was asked for; `text` says what to change."""

    text: str


class Beat(Struct, frozen=True, tag="beat"):
    """The handler says that it is getting on."""


class Done(Struct, frozen=True, tag="done"):
    """The handler has ended; what it returned, encoded, if somebody wants it."""

    body: bytes | None = None
    content_type: str | None = None


class HandlerSignal(Struct, frozen=True, tag="signalled"):
    """The handler had a say in its own fate."""

    decision: Decision
    text: str


class Failed(Struct, frozen=True, tag="failed", kw_only=True):
    """The handler raised; all there is to know of it, as plain values."""

    names: tuple[str, ...]  # of its class and ancestors, with their modules
    text: str
    args: tuple[Plain, ...] | None = None  # when they are plain
    clues: dict[str, Plain] = {}  # code, status … as found on it
    cause: "Failed | None" = None
    stack: str = ""
    frame: str = ""


Request: TypeAlias = Hello | Ask
Answer: TypeAlias = Ready | UnusableHandler | Beat | HandlerNote | Done | HandlerSignal | Failed

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def frame(value: Request | Answer) -> bytes:
    """Return a value as it goes over the wire; a ValueError if it is too large for it."""
    body = _encoder.encode(value)
    if len(body) > LARGEST:
        raise ValueError(f"{len(body)} bytes are more than can be passed on")
    return len(body).to_bytes(LENGTH, "big") + body


def read_request(body: bytes) -> Request:
    """Return what a worker asks."""
    return _requests.decode(body)


def read_answer(body: bytes) -> Answer:
    """Return what a handler's process answers."""
    return _answers.decode(body)


def length(head: bytes) -> int:
    """Return how long the value behind these bytes is; a ValueError if nobody sent that."""
    size = int.from_bytes(head, "big")
    if size > LARGEST:
        raise ValueError(f"a frame of {size} bytes is too long")
    return size


# They are raised here as what they were there, so that policies and classifiers see
# no difference: as their own class where that can be done without running its code,
# otherwise as a stand-in that has its name, its ancestors' and its attributes.

_CLUES: Final = (
    "code",
    "errno",
    "status",
    "status_code",
    "sqlstate",
    "pgcode",
    "sqlite_errorname",
    "grpc_status_code",
    "retry_after",
)
_LONGEST: Final = 1000  # characters of one attribute or argument
_CAUSES: Final = 4
_NO_RULES: Final = ErrorClassifier(())


class RemoteError(Exception):
    """Stands in for what a handler raised in another process, under its name."""

    def __init__(self, text: str) -> None:
        self.args = (text,)  # no other class's code is run, whatever we inherit

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerLost(DeadLetterError):
    """The process that ran a handler died over it."""

    dlq_trouble = Trouble.WORKER_LOST


def describe(error: BaseException) -> Failed | HandlerSignal:
    """Return what the other side needs to raise this error again."""
    if isinstance(error, Signal):
        return HandlerSignal(error.decision, _sendable(text_of(error)))
    seen = capture(error, _NO_RULES)
    told = None
    causes = [cause for how, cause in lineage(error) if how != "holding"]
    for cause in reversed(causes[:_CAUSES]):
        told = _told(cause, told)
    return _told(error, told, stack=seen.stack, frame=seen.frame)


def revive(told: Failed | HandlerSignal) -> Exception:
    """Return the error to raise here for one that was raised there."""
    if isinstance(told, HandlerSignal):
        if isinstance(told.decision, Ack):
            return Ignore(told.text)
        return Signal(told.decision, told.text)
    error = _itself(told) or _stand_in(told)
    for name, value in told.clues.items():
        _put(error, name, value)
    _put(error, "dlq_traceback", RemoteTraceback(told.stack, told.frame))
    if told.cause is not None:
        error.__cause__ = revive(told.cause)
    return error


def _told(
    error: BaseException, cause: Failed | None, *, stack: str = "", frame: str = ""
) -> Failed:
    classes = [cls for cls in ancestors(type(error)) if issubclass(cls, BaseException)]
    return Failed(
        names=tuple(qualified_name(cls) for cls in classes),
        text=_sendable(text_of(error)),
        args=_plain_args(error),
        clues=_clues(error),
        cause=cause,
        stack=stack,
        frame=frame,
    )


def _plain_args(error: BaseException) -> tuple[Plain, ...] | None:
    """Its arguments, when they are few and simple enough to be sent."""
    args = error.args
    if type(args) is tuple and len(args) <= 5 and all(map(_is_plain, args)):
        return args
    return None


def _clues(error: BaseException) -> dict[str, Plain]:
    """Return what rules look for on an error, where it is a plain value."""
    found: dict[str, Plain] = {}
    for holder in (_get(error, "response"), error):
        for name in _CLUES:
            value = _get(holder, name)
            if callable(value):  # a gRPC error's code()
                value = _call(value)
            if value is not None and not _is_plain(value):
                value = _get(value, "name")  # a status that is an enum
            if value is not None and _is_plain(value):
                found[name] = value
    return found


def _is_plain(value: object) -> bool:
    if type(value) is str:
        return len(value) <= _LONGEST and _sendable(value) == value
    if type(value) is int:
        return abs(value) < 2**63
    return value is None or type(value) in (float, bool)


def _sendable(text: str) -> str:
    """Without halves of characters, which cannot be encoded."""
    return text.encode("utf-8", "replace").decode()


def _get(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 -- a property may do anything
        return None


def _call(function: Any) -> Any:
    try:
        return function()
    except Exception:  # noqa: BLE001 -- it is not our code
        return None


def _put(error: BaseException, name: str, value: object) -> None:
    try:
        setattr(error, name, value)
    except Exception:  # noqa: BLE001 -- read-only there: then it has its own
        return


def _itself(told: Failed) -> Exception | None:
    """Return an instance of its own class, if we know that class and it looks the same."""
    cls = _known(told.names[0])
    if cls is None:
        return None
    for args in (told.args, (told.text,)):
        try:
            error = cls.__new__(cls, *(args or ()))
            if args and type(error) is cls and text_of(error) == told.text:
                return error
        except Exception:  # noqa: BLE001, S112 -- it wants to be made otherwise
            continue
    return None


def _stand_in(told: Failed) -> RemoteError:
    try:
        return _class_for(told.names)(told.text)
    except Exception:  # noqa: BLE001 -- its class cannot have heirs: only its name, then
        return _heir(told.names[0], RemoteError)(told.text)


@lru_cache(maxsize=256)
def _class_for(names: tuple[str, ...]) -> type[RemoteError]:
    """Return a class of the first name, with ancestors that have the others."""
    unknown = list(takewhile(lambda name: _known(name) is None, names))
    cls: type[RemoteError] = RemoteError
    if len(unknown) < len(names):
        nearest = _known(names[len(unknown)])
        if nearest is not None and nearest is not Exception:
            cls = type("RemoteError", (RemoteError, nearest), {})
    for name in reversed(unknown or names[:1]):
        cls = cls if name == "BaseException" else _heir(name, cls)
    return cls


def _heir(full_name: str, parent: type[RemoteError]) -> type[RemoteError]:
    module, _, name = full_name.rpartition(".")
    return type(name, (parent,), {"__module__": module or "builtins"})


def _known(name: str) -> type[Exception] | None:
    """Return the class of that name, if it is imported here; nothing is imported for it."""
    module_name, _, attribute = name.rpartition(".")
    module = sys.modules.get(module_name or "builtins")
    found = getattr(module, attribute, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return None
