"""
Exceptions that resist being looked at: sixty ways to break whoever handles one.

Each is made afresh by `hostile_errors()`, under a name that says what it does.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

Make = Callable[[], BaseException]


class Shouting(str):
    """A text that raises whenever it is touched."""

    __slots__ = ()

    def _no(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("do not touch")

    lower = upper = encode = replace = split = strip = isprintable = _no
    __len__ = __getitem__ = __contains__ = __iter__ = __eq__ = __format__ = _no  # type: ignore[assignment]
    __hash__ = str.__hash__


class BadNumber(int):
    """A number that raises whenever it is used."""

    def _no(self, *args: object) -> NoReturn:
        raise RuntimeError("do not count")

    __add__ = __eq__ = __lt__ = __le__ = __ge__ = __gt__ = __index__ = _no  # type: ignore[assignment]
    __str__ = __repr__ = __float__ = __abs__ = _no  # type: ignore[assignment]
    __hash__ = int.__hash__


class Liar:
    """Something that has whatever it is asked for, and it is wrong."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)

    def __eq__(self, other: object) -> bool:
        raise SystemExit

    def __bool__(self) -> bool:
        raise SystemExit

    __hash__ = None  # type: ignore[assignment]


class Meta(type):
    """A class of classes without names, modules, hashes or equals."""

    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")

    @property
    def __module__(cls) -> str:
        raise RuntimeError("no module")

    @property
    def __mro__(cls) -> Any:
        raise RuntimeError("no ancestors")

    @property
    def __dict__(cls) -> Any:
        raise RuntimeError("nothing")

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("no " + name)

    def __hash__(cls) -> int:
        raise RuntimeError("no hash")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("no equal")

    def __instancecheck__(cls, other: object) -> bool:
        raise RuntimeError("no instances")

    def __subclasscheck__(cls, other: type) -> bool:
        raise RuntimeError("no subclasses")


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """A method that raises."""

    def method(self: object, *args: object) -> NoReturn:
        raise error

    return method


def made(name: str, **contents: object) -> BaseException:
    """An instance of a class with these contents."""
    kind: type[BaseException] = type(name, (Exception,), contents)
    return kind("text")


def carrying(**attributes: object) -> BaseException:
    """An error with these attributes."""
    error = ValueError("text")
    vars(error).update(attributes)
    return error


def linked(length: int, *, close: bool = False) -> BaseException:
    """A chain of causes, closed to a ring if asked to."""
    first = error = ValueError("0")
    for number in range(length):
        cause = ValueError(str(number))
        error.__cause__ = cause
        error = cause
    if close:
        error.__cause__ = first
    return first


def deep(depth: int) -> BaseException:
    """An error from far down."""

    def dig(left: int) -> None:
        if left == 0:
            raise ValueError("deep")
        dig(left - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 1_000)
    try:
        dig(depth)
    except ValueError as error:
        return error
    finally:
        sys.setrecursionlimit(limit)
    raise AssertionError


def from_odd_code(filename: str, function: str) -> BaseException:
    """An error from code with a made-up file and function name."""
    code = compile("raise ValueError('x')", filename, "exec")
    code = code.replace(co_name=function, co_qualname=function)
    try:
        exec(code, {"__name__": Shouting("m")})
    except ValueError as error:
        return error
    raise AssertionError


def nested_groups(depth: int) -> BaseException:
    """Groups within groups."""
    error: Exception = ValueError("inner")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def group_in_its_cause() -> BaseException:
    """A group one of whose members was caused by the group."""
    member = ValueError("member")
    group = ExceptionGroup("group", [member])
    member.__cause__ = group
    return group


def renamed(**changes: object) -> BaseException:
    """An error whose class was changed after it was made."""
    kind: type[BaseException] = type("Kind", (Exception,), {})
    for name, value in changes.items():
        setattr(kind, name, value)
    return kind("text")


def without_module() -> BaseException:
    """An error whose class was made where there was no module."""
    nowhere: dict[str, Any] = {"type": type, "Exception": Exception}
    exec("kind = type('Kind', (Exception,), {})", nowhere)
    error: BaseException = nowhere["kind"]("text")
    return error


def _texts() -> Iterator[tuple[str, Make]]:
    for kind in (ValueError, KeyboardInterrupt, SystemExit, RecursionError, MemoryError):
        method = raising(kind("no"))
        yield f"str raises {kind.__name__}", lambda m=method: made("Mute", __str__=m)
    yield "str is None", lambda: made("Mute", __str__=lambda self: None)
    yield "str is bytes", lambda: made("Mute", __str__=lambda self: b"x")
    yield "str shouts", lambda: made("Loud", __str__=lambda self: Shouting("x" * 9_999))
    yield ("repr raises", lambda: ValueError(Liar(), made("M", __repr__=raising(OSError()))))
    yield "argument shouts", lambda: ValueError(Shouting("x"))
    yield "200 MB", lambda: ValueError("x" * 200_000_000)
    yield "lone surrogates", lambda: ValueError("\ud800 \udfff")
    yield "NULs", lambda: ValueError("\x00" * 5_000)
    yield "controls", lambda: ValueError("\x1b[2J\x07\r\x9b\u202e\u2028\x7f")
    yield "wide", lambda: ValueError("😀" * 5_000)
    yield "newlines", lambda: ValueError("\n" * 5_000)
    yield "secret", lambda: ValueError("password=hunter2")
    yield "percent and braces", lambda: ValueError("%s %(x)s {0} {x.__class__}")
    yield "many arguments", lambda: ValueError(*range(10_000))
    yield "no arguments", ValueError


def _attributes() -> Iterator[tuple[str, Make]]:
    error = RuntimeError("no")
    yield "getattr raises", lambda: made("Deaf", __getattr__=raising(error))
    yield "getattribute raises", lambda: made("Deaf", __getattribute__=raising(error))
    yield "class raises", lambda: made("Deaf", __class__=property(raising(error)))
    yield "class lies", lambda: made("Deaf", __class__=property(lambda self: OSError))
    yield "dict raises", lambda: made("Deaf", __dict__=property(raising(error)))
    yield "cause raises", lambda: made("Deaf", __cause__=property(raising(error)))
    yield "context raises", lambda: made("Deaf", __context__=property(raising(error)))
    yield ("traceback raises", lambda: made("Deaf", __traceback__=property(raising(error))))
    yield "args raise", lambda: made("Deaf", args=property(raising(error)))
    yield "bool raises", lambda: made("Deaf", __bool__=raising(error))
    yield "eq raises", lambda: made("Deaf", __eq__=raising(error), __hash__=None)
    for name in ("code", "errno", "status", "response", "retry_after", "headers"):
        prop = property(raising(SystemExit()))
        yield f"{name} raises", lambda n=name, p=prop: made("Deaf", **{n: p})
        yield f"{name} lies", lambda n=name: carrying(**{n: Liar()})
    yield "bad numbers", lambda: carrying(code=BadNumber(503), status=BadNumber(503))
    yield "bad wait", lambda: carrying(retry_after=BadNumber(5))
    yield "huge numbers", lambda: carrying(code=10**5_000, status=-(10**5_000))
    yield "shouting codes", lambda: carrying(code=Shouting("E"), errno=Shouting("E"))
    yield "code raises when called", lambda: carrying(code=raising(SystemExit()))
    yield "is its own response", _own_response
    yield "bad OSError", lambda: OSError(10**30, Liar())


def _own_response() -> BaseException:
    error = ValueError("text")
    vars(error)["response"] = error
    vars(error)["code"] = error
    return error


def _classes() -> Iterator[tuple[str, Make]]:
    yield "metaclass", lambda: type.__call__(Meta("Hidden", (Exception,), {}), "x")
    yield "name shouts", lambda: renamed(__name__=Shouting("Loud"))
    yield "qualname shouts", lambda: renamed(__qualname__=Shouting("Loud"))
    yield "odd qualname", lambda: renamed(__qualname__="\ud800\n\x00" * 1_000)
    yield "module is a number", lambda: renamed(__module__=5)
    yield "module lies", lambda: renamed(__module__=Liar())
    yield "no module", without_module
    yield "long name", lambda: made("X" * 100_000)


def _families() -> Iterator[tuple[str, Make]]:
    yield "own cause", lambda: linked(0, close=True)
    yield "ring of causes", lambda: linked(3, close=True)
    yield "long chain", lambda: linked(10_000)
    yield "nested groups", lambda: nested_groups(200)
    yield ("wide group", lambda: ExceptionGroup("g", [ValueError(str(n)) for n in range(9_999)]))
    yield "group in its cause", group_in_its_cause
    yield (
        "group of exits",
        lambda: BaseExceptionGroup(
            "g", [SystemExit(), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
        ),
    )
    yield "deep stack", lambda: deep(10_000)
    yield "odd file", lambda: from_odd_code('\n"\x1b\ud800' * 1_000, "f\n" * 1_000)
    yield "secret file", lambda: from_odd_code("<https://u:hunter2@h/x.py>", "f")
    for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        yield kind.__name__, kind
    yield "stop", StopIteration
    yield "memory", MemoryError


def hostile_errors() -> dict[str, Make]:
    """All of them, by name."""
    return dict([*_texts(), *_attributes(), *_classes(), *_families()])
