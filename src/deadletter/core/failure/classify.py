"""
Classification of errors: an ordered list of rules; the first that matches wins.

    ErrorClassifier(rules).classify(error) -> Verdict

The classifier tries all rules on the error itself, then on its cause, then on the
members of an exception group. If no rule matches, the error's class may declare a
`dlq_trouble`. Every other error is `unknown`, which is retried unless a policy says
otherwise. Ready-made rules are in `core.failure.rules`.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from deadletter.core.errors import ConfigError
from deadletter.core.failure import Trouble, Verdict
from deadletter.core.text import hint_of

from .clues import (
    GRPC_STATUSES,
    Clues,
    ancestors,
    declared,
    described,
    is_alone,
    is_bare,
    lineage,
    look,
    plain_name,
    qualified_name,
    wait_asked_for,
)

# Rules.

_MATCHERS: Final = (
    *("exact", "types", "names", "name_parts"),
    *("error_codes", "statuses", "grpc", "texts", "pattern", "predicate"),
)
_LISTS: Final = (
    *((name, type, "exception types") for name in ("exact", "types")),
    *((name, str, "texts") for name in ("names", "name_parts", "texts")),
    *((name, str, "texts") for name in ("error_codes", "grpc")),
    ("statuses", int, "numbers"),
)
_SAY_NOTHING: Final = (Exception, BaseException, object)


class Rule(Struct, frozen=True, kw_only=True):
    """
    A match on errors, and the kind of trouble that they mean.

    Every given matcher must match; a matcher with several values matches if one of
    them does. Only `name_parts` and `texts` ignore case. Keep patterns simple: they
    run over error texts of any content.
    """

    id: str
    trouble: Trouble
    code: str = ""  # empty: derived from the match: HTTP_503, ECONNRESET, VALUE_ERROR …
    exact: tuple[type[BaseException], ...] = ()  # exactly this type
    types: tuple[type[BaseException], ...] = ()  # of this type or a subclass
    names: tuple[str, ...] = ()  # its or an ancestor's: TimeoutError, psycopg.errors.*
    name_parts: tuple[str, ...] = ()  # in its or an ancestor's name, without module
    error_codes: AbstractSet[str] = frozenset()  # ECONNREFUSED, 40P01 …
    statuses: Collection[int] = ()  # HTTP: {408, 429}, range(500, 600) …
    grpc: Collection[str] = ()  # UNAVAILABLE …
    texts: tuple[str, ...] = ()  # in the error's text
    pattern: re.Pattern[str] | None = None  # in the error's text, bounded
    predicate: Callable[[BaseException], object] | None = None

    def __post_init__(self) -> None:
        _check(self)
        force_setattr(self, "trouble", Trouble(self.trouble))
        for name in ("texts", "name_parts"):
            lower = tuple(part.lower() for part in getattr(self, name))
            force_setattr(self, name, lower)
        force_setattr(self, "error_codes", frozenset(self.error_codes))

    @property
    def is_by_type(self) -> bool:
        """Return whether the rule matches by type alone."""
        return not any(getattr(self, name) for name in _MATCHERS[4:])

    def is_about(self, cls: type) -> bool:
        """Return whether errors of this class may match."""
        if self.exact and not any(cls is one for one in self.exact):
            return False
        if self.types and not issubclass(cls, self.types):
            return False
        if not self.names and not self.name_parts:
            return True
        kin = [c for c in ancestors(cls) if all(c is not one for one in _SAY_NOTHING)]
        plain = [plain_name(c) for c in kin]
        if self.names and not _fits(self.names, plain, map(qualified_name, kin)):
            return False
        parts = self.name_parts
        return not parts or any(holds_any(name.lower(), parts) for name in plain)

    def holds(self, clues: Clues) -> bool:
        """Return whether the clues of such an error match."""
        if self.error_codes and self.error_codes.isdisjoint(clues.codes):
            return False
        return (
            (not self.statuses or clues.status in self.statuses)
            and (not self.grpc or clues.grpc in self.grpc)
            and (not self.texts or holds_any(clues.lower, self.texts))
            and (self.pattern is None or self.pattern.search(clues.text) is not None)
            and (self.predicate is None or self._agrees(self.predicate, clues.error))
        )

    def _agrees(self, predicate: Callable[[BaseException], object], error: BaseException) -> bool:
        try:
            return bool(predicate(error))
        except BaseException as broken:
            raise RuleFailed(self.id, broken) from broken


class RuleFailed(Exception):
    """The predicate of a rule raised an error of its own."""

    def __init__(self, id_: str, error: BaseException) -> None:
        super().__init__(f"rule {id_!r} raised {described(error)}")


def _fits(globs: Iterable[str], plain: list[str], qualified: Iterable[str]) -> bool:
    full = list(qualified)
    return any(
        fnmatchcase(name, glob) for glob in globs for name in (full if "." in glob else plain)
    )


def holds_any(text: str, parts: Iterable[str]) -> bool:
    """Return whether any of the parts is in the text."""
    for part in parts:  # noqa: SIM110 -- any() over a generator costs twice the time
        if part in text:
            return True
    return False


def _check(rule: Rule) -> None:
    if not rule.id.strip():
        raise ConfigError("A rule has no id: give it a short name.")
    if rule.trouble not in tuple(Trouble):
        raise ConfigError(
            f"Rule {rule.id!r}: trouble must be one of "
            f"{', '.join(f'Trouble.{one.name}' for one in Trouble)}, got {rule.trouble!r}."
        )
    _check_lists(rule)
    if not any(getattr(rule, name) for name in _MATCHERS):
        raise ConfigError(
            f"Rule {rule.id!r} matches nothing: give it at least one of {', '.join(_MATCHERS)}."
        )
    unknown = set(rule.grpc) - GRPC_STATUSES
    if unknown:
        raise ConfigError(
            f"Rule {rule.id!r}: unknown gRPC status {', '.join(sorted(unknown))}: "
            f"use {', '.join(sorted(GRPC_STATUSES))}."
        )
    odd = [status for status in rule.statuses if not 100 <= status <= 999]
    if odd:
        raise ConfigError(f"Rule {rule.id!r}: {odd[0]} is not an HTTP status: use 100 to 999.")


def _check_lists(rule: Rule) -> None:
    # A single text would count as a list of characters, and a single type or number
    # would fail only at the first error.
    for name, kind, what in _LISTS:
        given = getattr(rule, name)
        if (
            isinstance(given, str | int | type)
            or not all(isinstance(one, kind) for one in given)
            or "" in given
        ):
            raise ConfigError(
                f"Rule {rule.id!r}: {name} must be a list of {what}, none of them "
                f"empty, not {given!r}."
            )
    if rule.predicate is not None and not callable(rule.predicate):
        raise ConfigError(
            f"Rule {rule.id!r}: predicate must be a function that takes the error and returns "
            f"True or False, got {rule.predicate!r}."
        )
    if rule.pattern is not None and not isinstance(rule.pattern, re.Pattern):
        raise ConfigError(
            f"Rule {rule.id!r}: compile its pattern with re.compile({rule.pattern!r})."
        )


# Rules from a file.


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as it is written in a file."""

    id: str
    trouble: Trouble
    code: str = ""
    names: tuple[str, ...] = ()
    name_parts: tuple[str, ...] = ()
    error_codes: frozenset[str] = frozenset()
    statuses: tuple[int | str, ...] = ()
    grpc: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    pattern: str = ""


def rules_from_toml(text: str) -> tuple[Rule, ...]:
    """
    Return the rules of a TOML file, in its order.

        [[rules]]
        id = "bank-is-closed"                  # the name it is known by
        trouble = "transient"                  # or permanent, logical, malformed …
        code = "BANK_CLOSED"                   # optional
        names = ["bank.errors.*", "Closed"]    # types; with a dot, the module counts
        statuses = [429, "500-599"]            # HTTP

        [[rules]]
        id = "card-declined"
        trouble = "permanent"
        texts = ["card declined", "do not honour"]

    A rule needs at least one of `names`, `name_parts`, `error_codes`, `statuses`,
    `grpc`, `texts` and `pattern` (a regular expression). They mean what they mean in
    `Rule`: all that is given must hold, and of several for one thing any will do.
    A ConfigError says what to change.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The rules are not valid TOML: {error}.") from error
    strangers = ", ".join(sorted(document.keys() - {"rules"}))
    if strangers:
        raise ConfigError(f"Rules are written in [[rules]] tables; move or remove: {strangers}.")
    tables = document.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ConfigError("Write every rule as a table of its own, under [[rules]].")
    rules = tuple(_rule(table, place) for place, table in enumerate(tables, 1))
    ids = [rule.id for rule in rules]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"Two rules are called {twice!r}: give each an id of its own.")
    return rules


def _rule(table: dict[str, Any], place: int) -> Rule:
    known_as = f"Rule {table.get('id', f'number {place}')!r}"
    try:
        read = msgspec.convert(table, _Table)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{known_as}: {error}. {_advice(table)}") from error
    return Rule(
        id=read.id,
        trouble=read.trouble,
        code=read.code,
        names=read.names,
        name_parts=read.name_parts,
        error_codes=read.error_codes,
        statuses=frozenset(s for one in read.statuses for s in _span(one, known_as)),
        grpc=read.grpc,
        texts=read.texts,
        pattern=_compiled(read.pattern, known_as),
    )


def _advice(table: dict[str, Any]) -> str:
    strangers = sorted(table.keys() - set(_Table.__struct_fields__))
    if strangers:
        fields = ", ".join(_Table.__struct_fields__)
        return f"Remove or rename {', '.join(strangers)}: a rule may have {fields}."
    troubles = [trouble.value for trouble in Trouble]
    if table.get("trouble") not in troubles:
        return f"Set trouble to one of {', '.join(troubles)}."
    return "Change it to what the documented example shows."


def _span(status: int | str, known_as: str) -> range:
    if isinstance(status, int):
        return range(status, status + 1)
    found = re.fullmatch(r"(\d{3})-(\d{3})", status)
    if found is None or found[1] > found[2]:
        raise ConfigError(
            f'{known_as}: {status!r} is not a span of HTTP statuses: write "500-599".'
        )
    return range(int(found[1]), int(found[2]) + 1)


def _compiled(pattern: str, known_as: str) -> re.Pattern[str] | None:
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{known_as}: its pattern is not a valid regular expression: {error}. "
            "For plain text, use texts instead."
        ) from error


__all__ = ["ErrorClassifier", "Rule", "rules_from_toml"]

_MOST_KINDS: Final = 1024  # cached
_NOTHING: Final = (False, False, False)  # no codes, no status, none of gRPC
_WORD_STARTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ODD: Final = re.compile(r"[^A-Z0-9]+")


class _Plan(Struct, frozen=True):
    """The rules that errors of one class with such clues can match."""

    rules: tuple[Rule, ...]
    words: re.Pattern[str] | None  # no rule matches a text without any of them

    def may_match(self, lower: str) -> bool:
        """Return whether a rule may match such a text; False is certain."""
        return self.words is None or self.words.search(lower) is not None

    def match(self, clues: Clues) -> Rule | None:
        if not self.may_match(clues.lower):
            return None
        return next((rule for rule in self.rules if rule.holds(clues)), None)


class _Kind(Struct, frozen=True):
    """Facts about a class of errors, cached at its first error."""

    cls: type  # kept, so that its id stays valid
    code: str
    is_bare: bool
    plans: dict[tuple[bool, bool, bool], _Plan]
    bare: _Plan  # for errors without clues
    usual: Verdict  # if no rule matches


class ErrorClassifier(Struct, frozen=True, dict=True):
    """An ordered list of rules; the first that matches wins."""

    rules: tuple[Rule, ...] = ()
    default: Trouble = Trouble.UNKNOWN

    def __post_init__(self) -> None:
        _check_rules(self.rules)
        force_setattr(self, "rules", tuple(self.rules))
        if self.default not in tuple(Trouble):
            raise ConfigError(
                f"default must be one of {', '.join(f'Trouble.{one.name}' for one in Trouble)}, "
                f"got {self.default!r}."
            )

    def extended(self, *rules: Rule) -> "ErrorClassifier":
        """Return a classifier that tries these rules before its own."""
        return ErrorClassifier((*rules, *self.rules), self.default)

    def classify(self, error: BaseException, now: datetime | None = None) -> Verdict:
        """
        Return the classification of an error. Never raises.

        `now` is needed to honour a Retry-After given as a date.
        """
        try:
            verdict = self._judge(error, now)
            if is_alone(error) or (verdict.rule and verdict.retry_after is not None):
                return verdict
            return self._look_behind(error, verdict, now)
        except RuleFailed as failed:
            return Verdict(Trouble.UNKNOWN, "UNCLASSIFIABLE", broken=str(failed))
        except BaseException:  # noqa: BLE001 -- an error may run any code at all
            return Verdict(self.default, "UNCLASSIFIABLE")

    def _look_behind(self, error: BaseException, verdict: Verdict, now: datetime | None) -> Verdict:
        asked = verdict.retry_after
        for _, behind in lineage(error):
            other = self._judge(behind, now)
            asked = other.retry_after if asked is None else asked
            verdict = verdict if verdict.rule else (other if other.rule else verdict)
            if verdict.rule and asked is not None:
                break
        return replace(verdict, retry_after=asked)

    def _judge(self, error: BaseException, now: datetime | None) -> Verdict:
        kind = self._kind(type(error))
        asked = None
        if kind.is_bare and not error.__dict__:
            clues, plan = Clues(error), kind.bare
            if not plan.may_match(clues.lower):  # the most frequent case
                return kind.usual
        else:
            clues = look(error)
            asked = wait_asked_for(clues, now)
            plan = self._plan(kind, clues)
        rule = plan.match(clues)
        if rule is None:
            return kind.usual if asked is None else replace(kind.usual, retry_after=asked)
        code = rule.code or _code_by(rule, clues) or kind.code
        return Verdict(rule.trouble, code, rule.id, asked)

    @cached_property
    def _kinds(self) -> dict[int, _Kind]:
        return {}

    def _kind(self, cls: type) -> _Kind:
        # By id: a metaclass may prevent hashing and comparing.
        kind = self._kinds.get(id(cls))
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[id(cls)] = self._seen_first(cls)
        return kind

    def _seen_first(self, cls: type) -> _Kind:
        code, trouble = _code_of(cls), _trouble_of(cls)
        usual = Verdict(self.default, code)
        if trouble is not None:
            usual = Verdict(trouble, code, "dlq_trouble")
        bare = _planned(self.rules, cls, *_NOTHING)
        return _Kind(cls, code, is_bare(cls), {_NOTHING: bare}, bare, usual)

    def _plan(self, kind: _Kind, clues: Clues) -> _Plan:
        has = (bool(clues.codes), clues.status is not None, clues.grpc is not None)
        plan = kind.plans.get(has)
        if plan is None:
            plan = kind.plans[has] = _planned(self.rules, kind.cls, *has)
        return plan


def _check_rules(given: object) -> None:
    if not isinstance(given, tuple | list) or not all(isinstance(one, Rule) for one in given):
        raise ConfigError(
            f"rules must be a tuple of Rule, got {given!r}: write "
            "ErrorClassifier((Rule(...), Rule(...)))."
        )


def _planned(
    rules: tuple[Rule, ...], cls: type, has_codes: bool, has_status: bool, has_grpc: bool
) -> _Plan:
    possible = []
    for rule in rules:
        if (
            (rule.error_codes and not has_codes)
            or (rule.statuses and not has_status)
            or (rule.grpc and not has_grpc)
            or not rule.is_about(cls)
        ):
            continue
        possible.append(rule)
        if rule.is_by_type:  # it always matches, so later rules never do
            break
    all_by_words = all(rule.texts for rule in possible)
    words = hint_of(text for rule in possible for text in rule.texts)
    return _Plan(tuple(possible), words if all_by_words else None)


def _code_by(rule: Rule, clues: Clues) -> str:
    if rule.statuses:
        return f"HTTP_{clues.status}"
    if rule.grpc:
        return f"GRPC_{clues.grpc}"
    return next((code for code in clues.codes if code in rule.error_codes), "")


def _code_of(cls: type) -> str:
    words = _WORD_STARTS.sub("_", plain_name(cls)).upper()
    return _ODD.sub("_", words).strip("_")[:60] or "ERROR"


def _trouble_of(cls: type) -> Trouble | None:
    trouble = declared(cls, "dlq_trouble")
    return trouble if type(trouble) is Trouble else None
