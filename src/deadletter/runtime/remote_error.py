"""
Errors of handlers that ran in another process.

They are raised here as what they were there, so that policies and classifiers see
no difference: as their own class where that can be done without running its code,
otherwise as a stand-in that has its name, its ancestors' and its attributes.
"""

import sys
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from deadletter.core.capture import Told, capture
from deadletter.core.classify import ErrorClassifier
from deadletter.core.decision import Ack
from deadletter.core.errors import DeadLetterError, Ignore, Signal
from deadletter.core.failure import Trouble
from deadletter.core.raised import ancestors, lineage, qualified_name, text_of

from .isolation_wire import Failed, Plain, Signalled

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


def describe(error: BaseException) -> Failed | Signalled:
    """What the other side needs to raise this error again."""
    if isinstance(error, Signal):
        return Signalled(error.decision, _sendable(text_of(error)))
    seen = capture(error, _NO_RULES)
    told = None
    causes = [cause for how, cause in lineage(error) if how != "holding"]
    for cause in reversed(causes[:_CAUSES]):
        told = _told(cause, told)
    return _told(error, told, stack=seen.stack, frame=seen.frame)


def revive(told: Failed | Signalled) -> Exception:
    """The error to raise here for one that was raised there."""
    if isinstance(told, Signalled):
        if isinstance(told.decision, Ack):
            return Ignore(told.text)
        return Signal(told.decision, told.text)
    error = _itself(told) or _stand_in(told)
    for name, value in told.clues.items():
        _put(error, name, value)
    _put(error, "dlq_told", Told(told.stack, told.frame))
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
    """What rules look for on an error, where it is a plain value."""
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
    """An instance of its own class, if we know that class and it looks the same."""
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
    """A class of the first name, with ancestors that have the others."""
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
    """The class of that name, if it is imported here; nothing is imported for it."""
    module_name, _, attribute = name.rpartition(".")
    module = sys.modules.get(module_name or "builtins")
    found = getattr(module, attribute, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return None
