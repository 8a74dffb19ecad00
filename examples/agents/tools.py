"""Tools of the agent: each knows which questions it is for."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from .errors import RateLimitError, ResourceNotFoundError, ValidationError
from .requests import Session

Use: TypeAlias = Callable[[re.Match[str], Session], str]

_OPERATORS: Final[Mapping[type[ast.AST], Callable[..., float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}
_METRES: Final = {"km": 1000.0, "m": 1.0, "cm": 0.01, "miles": 1609.344, "feet": 0.3048}


@dataclass(frozen=True, slots=True)
class Tool:
    """Something an agent can do, for questions that match."""

    name: str
    pattern: re.Pattern[str]
    use: Use


def _calculate(found: re.Match[str], session: Session) -> str:
    try:
        value = _evaluated(ast.parse(found["sum"].strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ValidationError(f"cannot calculate {found['sum']!r}: {error}") from error
    return f"{value:g}"


def _evaluated(node: ast.expr) -> float:
    """The value of a sum; nothing but numbers and the four operations is run."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluated(left), _evaluated(right))
        case ast.UnaryOp(op=ast.USub() as op, operand=operand):
            return _OPERATORS[type(op)](_evaluated(operand))
        case _:
            raise ValidationError(f"{ast.unparse(node)!r} is no sum")


def _convert(found: re.Match[str], session: Session) -> str:
    amount, unit, wanted = float(found["amount"]), found["unit"], found["wanted"]
    if unit not in _METRES or wanted not in _METRES:
        raise ValidationError(f"no way from {unit} to {wanted}")
    return f"{amount * _METRES[unit] / _METRES[wanted]:.4g} {wanted}"


def _look_up(found: re.Match[str], session: Session) -> str:
    """What the library says; it has a limit of its own, and is added to at times."""
    library = session.resources["library"]
    if not library.may_ask():
        raise RateLimitError("the library asks us to be slower")
    topic = found["topic"].strip().lower()
    answer: str | None = library.find(topic)
    if answer is None:
        raise ResourceNotFoundError(f"the library has nothing about {topic!r} yet")
    return answer


TOOLS: Final = (
    Tool(
        "convert",
        re.compile(r"convert (?P<amount>[\d.]+) (?P<unit>\w+) to (?P<wanted>\w+)"),
        _convert,
    ),
    Tool("calculate", re.compile(r"what is (?P<sum>[-+*/%(). \d]+)\?"), _calculate),
    Tool("look_up", re.compile(r"what about (?P<topic>[^?]+)\?"), _look_up),
)
