"""
Text to a tree.

    any  = all { OR all }
    all  = one { [AND] one }
    one  = ! one | ( any ) | field:value | word

The cost of a search is bounded here: its length, its terms and its depth. For
whatever text, `parse` returns a tree or raises a QueryError that points at the
offending token and says what to do.
"""

from typing import Final

from deadletter.core.errors import QueryError

from .ast import EVERYTHING, All, Any, Node, Not, Op, Term, Word
from .fields import Field, Kind, field_called, nearest
from .tokens import Mark, Pair, Sign, Text, Token, tokens
from .values import written

MAX_TERMS: Final = 100
MAX_DEPTH: Final = 20


def parse(text: str) -> Node:
    """The search a text stands for; no text at all is everything."""
    return _Parser(text).parse()


class _Parser:
    """A place in a row of tokens, moving forward."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._terms = 0

    def parse(self) -> Node:
        if not self._tokens:
            return EVERYTHING
        found = self._any(0)
        left = self._peek()
        if left is not None:  # only a closing bracket ends `any` early
            raise self._error("this bracket was never opened; take it out", left.at)
        return found

    def _error(self, text: str, at: int) -> QueryError:
        return QueryError(text, query=self._text, at=at)

    def _peek(self) -> Token | None:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return None

    def _sees(self, mark: Mark) -> bool:
        token = self._peek()
        return isinstance(token, Sign) and token.mark is mark

    def _takes(self, mark: Mark) -> bool:
        seen = self._sees(mark)
        self._next += seen
        return seen

    def _any(self, depth: int) -> Node:
        found = [self._all(depth)]
        while self._takes(Mark.OR):
            found.append(self._all(depth))
        return found[0] if len(found) == 1 else Any(tuple(found))

    def _all(self, depth: int) -> Node:
        found = [self._one(depth)]
        while self._takes(Mark.AND) or not self._at_end_of_all():
            found.append(self._one(depth))
        return found[0] if len(found) == 1 else All(tuple(found))

    def _at_end_of_all(self) -> bool:
        return self._peek() is None or self._sees(Mark.OR) or self._sees(Mark.CLOSE)

    def _one(self, depth: int) -> Node:
        token = self._peek()
        if token is None:
            raise self._error("something is missing at the end", len(self._text))
        self._next += 1
        match token:
            case Text():
                return self._word(token)
            case Pair():
                return self._term(token)
            case Sign(Mark.NOT):
                return Not(self._one(self._deeper(depth, token)))
            case Sign(Mark.OPEN):
                return self._bracket(depth, token)
            case Sign(Mark.CLOSE):
                raise self._error("there is nothing before this bracket", token.at)
            case Sign(mark):
                raise self._error(
                    f"{mark} stands between two terms; to search for the word, "
                    f'write "{mark}"',
                    token.at,
                )

    def _bracket(self, depth: int, opening: Sign) -> Node:
        inner = self._any(self._deeper(depth, opening))
        if not self._takes(Mark.CLOSE):
            raise self._error("this bracket is never closed; add a )", opening.at)
        return inner

    def _deeper(self, depth: int, sign: Sign) -> int:
        if depth == MAX_DEPTH:
            raise self._error(
                f"a search goes at most {MAX_DEPTH} deep; split it up", sign.at
            )
        return depth + 1

    def _counted(self, at: int) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise self._error(
                f"a search has at most {MAX_TERMS} terms; split it up", at
            )

    def _word(self, word: Text) -> Node:
        self._counted(word.at)
        if not word.pattern:
            raise self._error("there is nothing between these quotes", word.at)
        return EVERYTHING if word.pattern == "*" else Word(word.pattern, word.at)

    def _term(self, pair: Pair) -> Term:
        field = self._field(pair)
        if pair.op not in field.ops:
            lacks = "needs > or <" if pair.op is Op.IS else f"takes no {pair.op}"
            raise self._error(
                f"{field.name} {lacks}; write it like {field.example}", pair.at
            )
        if len(pair.values) > 1 and not (field.takes_lists and pair.op is Op.IS):
            raise self._error(
                "only one value can stand here, not a list", pair.values[1].at
            )
        values = tuple(self._value(field, pair.op, value) for value in pair.values)
        return Term(field.name, pair.op, values, self._path(field, pair), pair.at)

    def _field(self, pair: Pair) -> Field:
        field = field_called(pair.name[0])
        if field is not None and (field.kind is Kind.PATH or len(pair.name) == 1):
            return field
        name = ".".join(pair.name)
        near = nearest(name)
        hint = f'; did you mean "{near}"?' if near else "."
        raise self._error(
            f'there is no field "{name[:40]}"{hint} To search for the text itself, '
            "put it in quotes",
            pair.at,
        )

    def _path(self, field: Field, pair: Pair) -> tuple[str, ...]:
        if field.kind is not Kind.PATH:
            return ()
        path = pair.name[1:]
        if not path:
            raise self._error(
                f"{field.name} needs to know where to look; write it like "
                f"{field.example}",
                pair.at,
            )
        return path if field.name == "body" else (".".join(path),)

    def _value(self, field: Field, op: Op, value: Text) -> str:
        self._counted(value.at)
        try:
            return written(field, op, value.pattern)
        except ValueError as error:
            raise self._error(str(error), value.at) from None
