"""
What an error means: an ordered list of rules, the first that matches wins.

    ErrorClassifier(rules).classify(error) -> Verdict

The error itself is tried against all rules first, then what caused it, then the
members of a group. Where no rule knows, a class of errors may say it by itself,
with a `dlq_trouble`. All else is `unknown`, which is retried unless a policy says
otherwise. Ready-made rules are in `core.rules`.
"""

import re
from datetime import datetime
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from .clues import Clues, is_bare, look, wait_asked_for
from .errors import ConfigError
from .failure import Trouble, Verdict
from .raised import declared, is_alone, lineage, plain_name
from .rule import Rule, RuleFailed
from .rule_file import rules_from_toml
from .words import hint_of

__all__ = ["ErrorClassifier", "Rule", "rules_from_toml"]

_MOST_KINDS: Final = 1024  # a program has far fewer kinds of errors
_NOTHING: Final = (False, False, False)  # no codes, no status, none of gRPC
_WORD_STARTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ODD: Final = re.compile(r"[^A-Z0-9]+")


class _Plan(Struct, frozen=True):
    """The rules that an error of one class, carrying such clues, can match at all."""

    rules: tuple[Rule, ...]
    words: re.Pattern[str] | None  # if none of them is in a text, no rule matches

    def may_match(self, lower: str) -> bool:
        """Whether a rule can be about such a text; no is certain."""
        return self.words is None or self.words.search(lower) is not None

    def match(self, clues: Clues) -> Rule | None:
        if not self.may_match(clues.lower):
            return None
        return next((rule for rule in self.rules if rule.holds(clues)), None)


class _Kind(Struct, frozen=True):
    """What is known of a class of errors once the first of them was seen."""

    cls: type  # kept, so that its id stays its own
    code: str
    is_bare: bool
    plans: dict[tuple[bool, bool, bool], _Plan]
    bare: _Plan  # for those that carry nothing
    usual: Verdict  # where no rule matches


class ErrorClassifier(Struct, frozen=True, dict=True):
    """An ordered list of rules; the first that matches wins."""

    rules: tuple[Rule, ...] = ()
    default: Trouble = Trouble.UNKNOWN

    def __post_init__(self) -> None:
        _check_rules(self.rules)
        force_setattr(self, "rules", tuple(self.rules))
        if self.default not in tuple(Trouble):
            raise ConfigError(
                f"default={self.default!r} cannot be: use one of "
                f"{', '.join(f'Trouble.{one.name}' for one in Trouble)}."
            )

    def extended(self, *rules: Rule) -> "ErrorClassifier":
        """One that asks these rules before its own."""
        return ErrorClassifier((*rules, *self.rules), self.default)

    def classify(self, error: BaseException, now: datetime | None = None) -> Verdict:
        """
        Say what an error means. Never raises, whatever the error does.

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

    def _look_behind(
        self, error: BaseException, verdict: Verdict, now: datetime | None
    ) -> Verdict:
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
            if not plan.may_match(clues.lower):  # as most of those do not
                return kind.usual
        else:
            clues = look(error)
            asked = wait_asked_for(clues, now)
            plan = self._plan(kind, clues)
        rule = plan.match(clues)
        if rule is None:
            return (
                kind.usual if asked is None else replace(kind.usual, retry_after=asked)
            )
        code = rule.code or _code_by(rule, clues) or kind.code
        return Verdict(rule.trouble, code, rule.id, asked)

    @cached_property
    def _kinds(self) -> dict[int, _Kind]:
        return {}

    def _kind(self, cls: type) -> _Kind:
        # By id: a metaclass may make a class impossible to hash or compare.
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
    if not isinstance(given, tuple | list) or not all(
        isinstance(one, Rule) for one in given
    ):
        raise ConfigError(
            f"The rules of a classifier cannot be {given!r}: write "
            "ErrorClassifier((Rule(...), Rule(...)))."
        )


def _planned(
    rules: tuple[Rule, ...],
    cls: type,
    has_codes: bool,
    has_status: bool,
    has_grpc: bool,
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
        if rule.is_by_type:  # it always matches: what comes after never will
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
