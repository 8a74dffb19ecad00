"""One rule: which errors it is about, and what they mean."""

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from .clues import GRPC_STATUSES, Clues
from .errors import ConfigError
from .failure import Trouble
from .raised import ancestors, described, plain_name, qualified_name

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
    Errors like this are that kind of trouble.

    All that is given must hold; where several are given for one thing, any of
    them will do. Case is ignored in `name_parts` and `texts` only. A pattern is
    yours to keep simple: it runs over whatever an error's text may hold.
    """

    id: str
    trouble: Trouble
    code: str = ""  # empty: by what matched, HTTP_503, ECONNRESET, VALUE_ERROR …
    exact: tuple[type[BaseException], ...] = ()  # of this very type
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
        """Whether the type alone decides."""
        return not any(getattr(self, name) for name in _MATCHERS[4:])

    def is_about(self, cls: type) -> bool:
        """Whether errors of this class may match."""
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
        """Whether an error of such a class carries what it must."""
        if self.error_codes and self.error_codes.isdisjoint(clues.codes):
            return False
        return (
            (not self.statuses or clues.status in self.statuses)
            and (not self.grpc or clues.grpc in self.grpc)
            and (not self.texts or holds_any(clues.lower, self.texts))
            and (self.pattern is None or self.pattern.search(clues.text) is not None)
            and (self.predicate is None or self._agrees(self.predicate, clues.error))
        )

    def _agrees(
        self, predicate: Callable[[BaseException], object], error: BaseException
    ) -> bool:
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
        fnmatchcase(name, glob)
        for glob in globs
        for name in (full if "." in glob else plain)
    )


def holds_any(text: str, parts: Iterable[str]) -> bool:
    """Whether any of the parts is in the text."""
    for part in parts:  # noqa: SIM110 -- any() over a generator costs twice the time
        if part in text:
            return True
    return False


def _check(rule: Rule) -> None:
    if not rule.id.strip():
        raise ConfigError("A rule has no id: give it a short name to be known by.")
    if rule.trouble not in tuple(Trouble):
        raise ConfigError(
            f"Rule {rule.id!r}: trouble={rule.trouble!r} cannot be: use "
            f"{', '.join(f'Trouble.{one.name}' for one in Trouble)}."
        )
    _check_lists(rule)
    if not any(getattr(rule, name) for name in _MATCHERS):
        raise ConfigError(
            f"Rule {rule.id!r} matches nothing: give it at least one of "
            f"{', '.join(_MATCHERS)}."
        )
    unknown = set(rule.grpc) - GRPC_STATUSES
    if unknown:
        raise ConfigError(
            f"Rule {rule.id!r}: gRPC has no status {', '.join(sorted(unknown))}; "
            f"it has {', '.join(sorted(GRPC_STATUSES))}."
        )
    odd = [status for status in rule.statuses if not 100 <= status <= 999]
    if odd:
        raise ConfigError(
            f"Rule {rule.id!r}: {odd[0]} is not an HTTP status: use 100 to 999."
        )


def _check_lists(rule: Rule) -> None:
    # A single text would be taken for a list of letters, and a single type or
    # number would fail only when the first error comes.
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
            f"Rule {rule.id!r}: predicate={rule.predicate!r} cannot be: use a function "
            "that is given the error and returns True or False."
        )
    if rule.pattern is not None and not isinstance(rule.pattern, re.Pattern):
        raise ConfigError(
            f"Rule {rule.id!r}: compile its pattern with re.compile({rule.pattern!r})."
        )
