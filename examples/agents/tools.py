"""The tools of the agent, each with the pattern of its questions."""

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
    """A function that answers questions that match a pattern."""

    name: str
    pattern: re.Pattern[str]
    use: Use


def _calculate(found: re.Match[str], session: Session) -> str:
    try:
        value = _evaluate(ast.parse(found["sum"].strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ValidationError(f"cannot calculate {found['sum']!r}: {error}") from error
    return f"{value:g}"


def _evaluate(node: ast.expr) -> float:
    """Return the value of an expression; only numbers and arithmetic are evaluated."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left), _evaluate(right))
        case ast.UnaryOp(op=ast.USub() as op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand))
        case _:
            raise ValidationError(
                f"{ast.unparse(node)!r} is not arithmetic: use numbers and + - * / %"
            )


def _convert(found: re.Match[str], session: Session) -> str:
    amount, unit, wanted = float(found["amount"]), found["unit"], found["wanted"]
    if unit not in _METRES or wanted not in _METRES:
        raise ValidationError(f"cannot convert {unit} to {wanted}: use {', '.join(_METRES)}")
    return f"{amount * _METRES[unit] / _METRES[wanted]:.4g} {wanted}"


def _look_up(found: re.Match[str], session: Session) -> str:
    """Return a fact from the library, within its rate limit."""
    library = session.resources["library"]
    if not library.may_ask():
        raise RateLimitError("the library allows no more lookups this second")
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
