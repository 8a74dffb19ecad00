"""
Clues of an error that rules can match: codes, statuses and a text.

Libraries put them in a dozen places. They are found by shape, without importing the library.
Inspecting never raises, whatever the error's own code does.
"""

import errno
import socket
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import reduce
from math import isfinite
from operator import getitem
from typing import Any, Final

# Names, texts and causes of exceptions.
#
# Exceptions are foreign code, which may do anything when it is inspected. Nothing in
# here raises, and attributes are read past that code where possible.

TEXT_LIMIT: Final = 10_000

_NAME_LIMIT: Final = 200
_CHAIN: Final = 8  # causes of causes that are inspected
_MOST: Final = 50  # errors behind one that are inspected, members of groups included

# The original attributes, whatever a class or metaclass overrides.
_name: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_qualname: Final[Callable[[type], str]] = type.__dict__["__qualname__"].__get__
_module: Final[Callable[[type], object]] = type.__dict__["__module__"].__get__
_contents: Final = type.__dict__["__dict__"].__get__
ancestors: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_cause: Final = BaseException.__dict__["__cause__"].__get__
_context: Final = BaseException.__dict__["__context__"].__get__
_suppressed: Final = BaseException.__dict__["__suppress_context__"].__get__
_members: Final = BaseExceptionGroup.__dict__["exceptions"].__get__


def plain_name(cls: type) -> str:
    """Return the name of a class."""
    return _as_name(_name(cls))


def qualified_name(cls: type) -> str:
    """Return the name of a class with its module, as tracebacks show it."""
    name = _as_name(_qualname(cls))
    try:
        module = _as_name(_module(cls))
    except AttributeError:  # deleted
        module = ""
    return f"{module}.{name}" if module and module != "builtins" else name


def declared(cls: type, name: str) -> object:
    """Return an attribute of the class or its nearest ancestor; None if there is none."""
    for one in ancestors(cls):
        if name in _contents(one):
            return _contents(one)[name]
    return None


def text_of(error: BaseException, limit: int = TEXT_LIMIT) -> str:
    """Return `str(error)`, cut to `limit`, or a placeholder if that raises."""
    try:
        # Not a method call: __str__ may return a str with methods of its own.
        return str.__getitem__(str(error), slice(limit))
    except BaseException:  # noqa: BLE001 -- __str__ may do anything
        return f"<{plain_name(type(error))} without a readable text>"


def described(error: BaseException) -> str:
    """Return the name and the text of an error, as in `KeyError: 'id'`."""
    return f"{plain_name(type(error))}: {text_of(error)}"


def lineage(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """
    Yield the errors behind this one, and how: its causes, then members of groups.

    The number is bounded, and none comes twice, however they refer to each other.
    """
    seen = {id(error)}
    unopened = deque([error])
    while unopened:
        family = [unopened.popleft()]
        for how, cause in _causes(family[0]):
            if id(cause) in seen or len(seen) > _MOST:
                break
            seen.add(id(cause))
            family.append(cause)
            yield how, cause
        for member in (member for one in family for member in _members_of(one)):
            if id(member) in seen or len(seen) > _MOST:
                continue
            seen.add(id(member))
            unopened.append(member)
            yield "holding", member


def is_alone(error: BaseException) -> bool:
    """Return whether no error is behind this one."""
    return (
        _context(error) is None
        and _cause(error) is None
        and not issubclass(type(error), BaseExceptionGroup)
    )


def _as_name(value: object) -> str:
    if not issubclass(type(value), str):
        return ""
    return str.__getitem__(value, slice(_NAME_LIMIT))  # type: ignore[index]


def _causes(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    for _ in range(_CHAIN):
        how, behind = "caused by", _cause(error)
        if behind is None and not _suppressed(error):
            how, behind = "while handling", _context(error)
        if behind is None:
            return
        yield how, behind
        error = behind


def _members_of(error: BaseException) -> tuple[BaseException, ...]:
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _members(error)
    return members[:_MOST]


GRPC_STATUSES: Final = frozenset(
    {"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"}
    | {"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "ABORTED"}
    | {"FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"}
    | {"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}
)

_CODES: Final = ("code", "sqlstate", "pgcode", "sqlite_errorname")
_STATUSES: Final = ("status_code", "status")
_PLACES: Final = (*_CODES, "errno", *_STATUSES, "grpc_status_code", "response")
_TELLING: Final = frozenset(
    {*_PLACES, "headers", "retry_after", "__getattr__", "__getattribute__", "__dict__"}
)
_LOOKUP_NUMBERS: Final = {  # errors of name lookups have their own numbers
    number: name
    for name, number in vars(socket).items()
    if name.startswith("EAI_") and isinstance(number, int)
}


class Clues:
    """The properties of one error that rules can match; texts are computed on demand."""

    __slots__ = ("_lower", "_text", "codes", "error", "grpc", "response", "status")

    codes: tuple[str, ...]
    status: int | None
    grpc: str | None

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.codes = ()
        self.status = self.grpc = self.response = None
        self._text: str | None = None
        self._lower: str | None = None

    @property
    def text(self) -> str:
        """The error's text, bounded."""
        if self._text is None:
            self._text = text_of(self.error)
        return self._text

    @property
    def lower(self) -> str:
        """The text in lower case."""
        if self._lower is None:
            self._lower = self.text.lower()
        return self._lower


def is_bare(cls: type) -> bool:
    """Return whether errors of this class carry no clues unless set on an instance."""
    own = ancestors(cls)[:-2]  # without BaseException and object
    return type(cls) is type and all(_TELLING.isdisjoint(vars(one)) for one in own)


def look(error: BaseException) -> Clues:
    """Return the clues of an error."""
    clues = Clues(error)
    found = _found(error)
    if found:
        clues.response = found.get("response")
        clues.codes = _codes(error, found)
        clues.status = _status(found)
        clues.grpc = _grpc(found)
    return clues


def wait_asked_for(clues: Clues, now: datetime | None) -> float | None:
    """Return the seconds that the server asked us to wait: `retry_after`, or its header."""
    asked = _seconds(_get(clues.error, "retry_after"), now)
    if asked is None:
        asked = _seconds(_header(clues.error), now)
    if asked is None and clues.response is not None:
        asked = _seconds(_header(clues.response), now)
    return asked


def _found(error: BaseException) -> dict[str, Any]:
    try:
        values = [getattr(error, name, None) for name in _PLACES]
    except BaseException:  # noqa: BLE001 -- a property may do anything
        values = [_get(error, name) for name in _PLACES]
    found = {name: value for name, value in zip(_PLACES, values, strict=True) if value is not None}
    if issubclass(type(error), SystemExit):
        found.pop("code", None)  # the exit status of a process
    return found


def _quietly(function: Callable[..., Any], *args: object) -> Any:
    try:
        return function(*args)
    except BaseException:  # noqa: BLE001 -- foreign code
        return None


def _get(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except BaseException:  # noqa: BLE001 -- a property may do anything
        return None


def _at(thing: object, *keys: str) -> Any:
    if not issubclass(type(thing), dict):
        return None
    return _quietly(reduce, getitem, keys, thing)


def _text(value: object) -> str | None:
    if not issubclass(type(value), str):
        return None
    return str.__getitem__(value, slice(100))  # type: ignore[index]


def _number(value: object) -> int | None:
    if not issubclass(type(value), int):
        return None
    return int.__add__(value, 0)  # type: ignore[operator]


def _code(value: object) -> str | None:
    if value is None or callable(value):
        return None
    number = _number(value)
    if number is not None:
        return str(number) if abs(number) < 10**12 else None
    return _text(value) or _text(_get(value, "name"))


def _error_number(error: BaseException, value: object) -> str | None:
    number = _number(value)
    if number is None or not issubclass(type(error), OSError):
        return _code(value)
    if issubclass(type(error), socket.gaierror):
        return _LOOKUP_NUMBERS.get(number)
    if _get(error, "library") is not None:  # TLS errors have their own numbers
        return None
    return errno.errorcode.get(number)


def _codes(error: BaseException, found: dict[str, Any]) -> tuple[str, ...]:
    codes = [_code(found[name]) for name in _CODES if name in found]
    if "errno" in found:
        codes.insert(0, _error_number(error, found["errno"]))
    if "response" in found:
        codes.append(_code(_at(found["response"], "Error", "Code")))
    return tuple(code for code in codes if code)


def _grpc(found: dict[str, Any]) -> str | None:
    code = found.get("code")
    answer = _quietly(code) if callable(code) else None
    for status in (answer, found.get("grpc_status_code"), found.get("status")):
        if status is None:
            continue
        name = _text(status) or _text(_get(status, "name"))
        if name in GRPC_STATUSES:
            return name
    return None


def _status(found: dict[str, Any]) -> int | None:
    candidates = [found.get(name) for name in _STATUSES]
    if "response" in found:
        response = found["response"]
        candidates += [_get(response, name) for name in _STATUSES]
        candidates.append(_at(response, "ResponseMetadata", "HTTPStatusCode"))
    for value in candidates:
        number = _number(value)
        if number is not None and 100 <= number <= 999:
            return number
    number = _number(found.get("code"))  # may be any number: accept only errors
    return number if number is not None and 400 <= number <= 599 else None


def _header(holder: object) -> Any:
    headers = _at(holder, "ResponseMetadata", "HTTPHeaders") or _get(holder, "headers")
    if headers is None:
        return None
    get = _get(headers, "get")
    return _quietly(get, "Retry-After") or _quietly(get, "retry-after")


def _seconds(value: object, now: datetime | None) -> float | None:
    if value is None:
        return None
    asked: float | None = _quietly(_read_seconds, value, now)
    return asked


def _read_seconds(value: object, now: datetime | None) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        value = _read_text(value[:100], now)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    seconds = float(value)
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _read_text(text: str, now: datetime | None) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    if now is None:
        return None
    date = parsedate_to_datetime(text)
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())
