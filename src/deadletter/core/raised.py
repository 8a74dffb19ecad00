"""
What every exception has: names, a text, and others behind it.

Exceptions come from anybody's code and may do anything when they are looked at.
Nothing in here raises, and what can be read past that code is.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

TEXT_LIMIT: Final = 10_000

_NAME_LIMIT: Final = 200
_CHAIN: Final = 8  # causes of causes looked at
_MOST: Final = 50  # errors looked at behind one, members of groups included

# The real thing, whatever a class or metaclass puts in front of it.
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
    """The class's own name."""
    return _as_name(_name(cls))


def qualified_name(cls: type) -> str:
    """The class's name with its module, as tracebacks show it."""
    name = _as_name(_qualname(cls))
    try:
        module = _as_name(_module(cls))
    except AttributeError:  # deleted
        module = ""
    return f"{module}.{name}" if module and module != "builtins" else name


def declared(cls: type, name: str) -> object:
    """What the class or the nearest ancestor says under a name; None for nothing."""
    for one in ancestors(cls):
        if name in _contents(one):
            return _contents(one)[name]
    return None


def text_of(error: BaseException, limit: int = TEXT_LIMIT) -> str:
    """`str(error)`, cut to `limit`; something harmless if there is no such thing."""
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
    The errors behind this one, and how: its causes, then members of groups.

    Bounded, and none twice, however they refer to each other.
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
    """Whether there is nothing behind this error."""
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
