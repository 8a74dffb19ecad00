"""
Text to a tree, and back.

    any  = all { OR all }
    all  = one { [AND] one }
    one  = ! one | ( any ) | field:value | word

The length, terms and depth of a search are bounded here. For any text, `parse` returns a tree
or raises a QueryError that points at the offending token and says what to do.
"""

import re
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.errors import QueryError

from .ast import EVERYTHING, All, Any, Node, Not, Op, Term, Word
from .fields import Field, Kind, field_called, literal, nearest, pattern, pieces, written

# Text to tokens, in one pass.
#
# Quotes hold spaces and signs together; a backslash makes the next sign an
# ordinary one. Inside quotes too, `*` is a wildcard and `\*` a star. `\u` and four
# hex digits are any character, also one that cannot be typed: `\u0000`, `\udc80`.

MAX_TEXT: Final = 64 * 1024
"""The most characters of a search: enough for the longest id with each character escaped."""

_HEX: Final = frozenset("0123456789abcdefABCDEF")


class Mark(StrEnum):
    """The operators between terms."""

    OPEN = "("
    CLOSE = ")"
    NOT = "!"
    AND = "AND"
    OR = "OR"


class Sign(Struct, frozen=True):
    """One of the marks."""

    mark: Mark
    at: int


class Text(Struct, frozen=True):
    """A word or value: a pattern."""

    pattern: str
    at: int


class Pair(Struct, frozen=True):
    """`name:value`, not checked yet; dots split the name."""

    name: tuple[str, ...]
    op: Op
    values: tuple[Text, ...]
    at: int


Token: TypeAlias = Sign | Text | Pair

_SIGNS: Final = {"(": Mark.OPEN, ")": Mark.CLOSE, "!": Mark.NOT}
_AFTER_PART: Final = frozenset({"", ":", ".", "(", ")", '"'})
_OPS: Final = (Op.GE, Op.LE, Op.GT, Op.LT)  # the longer ones first


def tokens(text: str) -> list[Token]:
    """Return all tokens of a text. Raises QueryError at an invalid one."""
    if len(text) > MAX_TEXT:
        raise QueryError(
            f"a search may have {MAX_TEXT:,} characters, this one has {len(text):,}", at=MAX_TEXT
        )
    return _Scanner(text).scan()


class _Scanner:
    """A position in a text, moving forward."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def scan(self) -> list[Token]:
        self._refuse_odd_characters()
        found: list[Token] = []
        while self._skip_spaces():
            mark = _SIGNS.get(self._here)
            if mark:
                found.append(Sign(mark, self._at))
                self._at += 1
            else:
                found.append(self._pair() or self._word())
        return found

    @property
    def _here(self) -> str:
        """The character at this position; empty at the end."""
        return self._text[self._at : self._at + 1]

    def _error(self, text: str, at: int | None = None) -> QueryError:
        return QueryError(text, query=self._text, at=self._at if at is None else at)

    def _refuse_odd_characters(self) -> None:
        for at, character in enumerate(self._text):
            if character == "\0" or "\ud800" <= character <= "\udfff":
                # Without the query: such a text cannot be printed.
                raise QueryError(
                    f"character {at + 1} is not one of a text; write it as \\u{ord(character):04x}",
                    at=at,
                )

    def _skip_spaces(self) -> bool:
        while self._here.isspace():
            self._at += 1
        return bool(self._here)

    def _word(self) -> Token:
        start = self._at
        quoted = self._here == '"'
        word = self._value()
        if quoted or "\\" in word.pattern:
            return word
        match word.pattern.upper():
            case "AND":
                return Sign(Mark.AND, start)
            case "OR":
                return Sign(Mark.OR, start)
            case "NOT" if word.pattern == "NOT":
                raise self._error(
                    "to leave something out, write ! before it; to search for "
                    'the word, write "NOT"',
                    start,
                )
        return word

    def _pair(self) -> Pair | None:
        start = self._at
        name = self._name()
        if name is None:  # a word after all
            self._at = start
            return None
        op = self._op()
        if self._here == "!":
            raise self._error("write the ! before the field")
        if not self._here or self._here.isspace() or self._here == ")":
            raise self._error(
                "there is no value after the colon; write one without a space, or "
                "put all of it in quotes to search for the text itself"
            )
        values = self._list() if self._here == "[" else (self._value(),)
        return Pair(name, op, values, start)

    def _name(self) -> tuple[str, ...] | None:
        """Return the text before a colon, split at its dots; None without a colon."""
        parts: list[str] = []
        missing: int | None = None
        while True:
            start = self._at
            quoted = self._here == '"' and bool(parts)
            parts.append(self._quoted() if quoted else self._bare_part())
            if self._at == start and missing is None:
                missing = start
            if self._here not in {":", "."}:
                return None
            self._at += 1
            if self._text[self._at - 1] == ":":
                break
        if missing is not None:
            raise self._error(
                "a name is missing here; to search for the text itself, put it in quotes", missing
            )
        # A name is looked up as it is, so a star in it is only a star.
        return tuple("*".join(pieces(part)) for part in parts)

    def _bare_part(self) -> str:
        found: list[str] = []
        while (here := self._here) not in _AFTER_PART and not here.isspace():
            found.append(self._character())
        return "".join(found)

    def _op(self) -> Op:
        for op in _OPS:
            if self._text.startswith(op, self._at):
                self._at += len(op)
                return op
        return Op.IS

    def _list(self) -> tuple[Text, ...]:
        start = self._at
        found: list[Text] = []
        self._at += 1
        while self._skip_spaces():
            if self._here in {",", "]"}:
                raise self._error("a value is missing here; write a list like [a,b]")
            found.append(self._value(inside=True))
            self._skip_spaces()
            if self._here == "]":
                self._at += 1
                self._must_end()
                return tuple(found)
            if self._here and self._here != ",":
                raise self._error("between two values of a list there must be a comma")
            self._at += 1
        raise self._error("this list has no end; close it with ]", start)

    def _value(self, *, inside: bool = False) -> Text:
        start = self._at
        if self._here != '"':
            return Text(_tidy(self._bare(inside=inside)), start)
        found = _tidy(self._quoted())
        if not (inside and self._here in {",", "]"}):
            self._must_end()
        return Text(found, start)

    def _must_end(self) -> None:
        if self._here and self._here != ")" and not self._here.isspace():
            raise self._error("a space is missing here")

    def _bare(self, *, inside: bool) -> str:
        ends, strange = (",]", '("[)') if inside else (")", '("')
        found: list[str] = []
        while (here := self._here) and here not in ends and not here.isspace():
            if here in strange:
                raise self._error(
                    f"{here} cannot stand here; put the value in quotes, or write \\{here}"
                )
            found.append(self._character())
        return "".join(found)

    def _quoted(self) -> str:
        start = self._at
        self._at += 1
        found: list[str] = []
        while self._here != '"':
            if not self._here:
                raise self._error('this quote has no end; close it with "', start)
            found.append(self._character())
        self._at += 1
        return "".join(found)

    def _character(self) -> str:
        """Return one character of a pattern, with its backslash if that matters."""
        here = self._here
        self._at += 1
        if here != "\\":
            return here
        escaped = self._here
        if escaped == "u" and (code := self._code()):
            return literal(chr(int(code, 16)))
        if not escaped or escaped.isalnum():
            raise self._error("for a backslash, write two of them", self._at - 1)
        self._at += 1
        return f"\\{escaped}" if escaped in "*\\" else escaped

    def _code(self) -> str | None:
        """Return the character of four hex digits after a `u`, if they are there."""
        digits = self._text[self._at + 1 : self._at + 5]
        if len(digits) < 4 or not _HEX.issuperset(digits):
            return None
        self._at += 5
        return digits


def _tidy(found: str) -> str:
    return pattern(pieces(found))


MAX_TERMS: Final = 100
MAX_DEPTH: Final = 20


def parse(text: str) -> Node:
    """Return the search of a text; an empty text matches everything."""
    return _Parser(text).parse()


class _Parser:
    """A position in a list of tokens, moving forward."""

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
                    f'{mark} stands between two terms; to search for the word, write "{mark}"',
                    token.at,
                )

    def _bracket(self, depth: int, opening: Sign) -> Node:
        inner = self._any(self._deeper(depth, opening))
        if not self._takes(Mark.CLOSE):
            raise self._error("this bracket is never closed; add a )", opening.at)
        return inner

    def _deeper(self, depth: int, sign: Sign) -> int:
        if depth == MAX_DEPTH:
            raise self._error(f"a search goes at most {MAX_DEPTH} deep; split it up", sign.at)
        return depth + 1

    def _counted(self, at: int) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise self._error(f"a search has at most {MAX_TERMS} terms; split it up", at)

    def _word(self, word: Text) -> Node:
        self._counted(word.at)
        if not word.pattern:
            raise self._error("there is nothing between these quotes", word.at)
        return EVERYTHING if word.pattern == "*" else Word(word.pattern, word.at)

    def _term(self, pair: Pair) -> Term:
        field = self._field(pair)
        if pair.op not in field.ops:
            lacks = "needs > or <" if pair.op is Op.IS else f"takes no {pair.op}"
            raise self._error(f"{field.name} {lacks}; write it like {field.example}", pair.at)
        if len(pair.values) > 1 and not (field.takes_lists and pair.op is Op.IS):
            raise self._error("only one value can stand here, not a list", pair.values[1].at)
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
                f"{field.name} needs to know where to look; write it like {field.example}", pair.at
            )
        return path if field.name == "body" else (".".join(path),)

    def _value(self, field: Field, op: Op, value: Text) -> str:
        self._counted(value.at)
        try:
            return written(field, op, value.pattern)
        except ValueError as error:
            raise self._error(str(error), value.at) from None


_UNTYPED: Final = re.compile("[\0\ud800-\udfff]")


def show(node: Node) -> str:
    """Return the search as a person would type it; empty for everything."""
    return "" if node == All(()) else _shown(node)


def _shown(node: Node) -> str:
    match node:
        case Term():
            return _term(node)
        case Word(text):
            return _word(text)
        case Not(term):
            return f"!{_tight(term)}"
        case All(()):
            return "*"
        case Any(()):
            return "!*"
        case All((only,)) | Any((only,)):
            return _shown(only)
        case All(terms):
            return " ".join(map(_tight, terms))
        case Any(terms):
            return " OR ".join(map(_loose, terms))


def _tight(node: Node) -> str:
    """Return it in brackets, if it would fall apart without."""
    match node:
        case All((_, _, *_)) | Any((_, _, *_)):
            return f"({_shown(node)})"
        case All((only,)) | Any((only,)):
            return _tight(only)
    return _shown(node)


def _loose(node: Node) -> str:
    """Return it in brackets, if it would fall apart between ORs: AND binds tighter."""
    match node:
        case Any((_, _, *_)):
            return f"({_shown(node)})"
        case All((only,)) | Any((only,)):
            return _loose(only)
    return _shown(node)


def _term(term: Term) -> str:
    name = ".".join([term.field, *(_part(term, part) for part in term.path)])
    op = "" if term.op is Op.IS else term.op
    values = [_value(value) for value in term.values]
    shown = values[0] if len(values) == 1 else f"[{','.join(values)}]"
    return f"{name}:{op}{shown}"


def _part(term: Term, part: str) -> str:
    # Dots are part of a header's name; in a body they lead one level deeper.
    plain = "_-." if term.field == "header" else "_-"
    dotted = part.startswith(".") or part.endswith(".") or ".." in part
    if part and not dotted and all(c.isalnum() or c in plain for c in part):
        return part
    return _quoted(pattern((part,)))


def _word(text: str) -> str:
    tidy = pattern(pieces(text))
    if ":" in tidy or tidy.upper() in {"AND", "OR", "NOT"}:
        return _quoted(tidy)
    return _value(tidy)


def _value(text: str) -> str:
    tidy = pattern(pieces(text))
    if tidy and all(c.isalnum() or c in r"_-.@/+:*\\" for c in tidy):
        return tidy
    return _quoted(tidy)


def _quoted(tidy: str) -> str:
    escaped = _UNTYPED.sub(_code, tidy.replace('"', '\\"'))
    return f'"{escaped}"'


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


# Free words in a search.


def first_word(node: Node) -> Word | None:
    """Return the first free word of a search; None if all of it names fields."""
    match node:
        case Word():
            return node
        case Term():
            return None
        case Not(term):
            return first_word(term)
        case All(terms) | Any(terms):
            found = (first_word(term) for term in terms)
            return next((word for word in found if word is not None), None)
