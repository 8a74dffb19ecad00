"""
Rules from a file.

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
"""

import re
import tomllib
from typing import Any

import msgspec
from msgspec import Struct

from .errors import ConfigError
from .failure import Trouble
from .rule import Rule


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as it is written."""

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
    """The rules of a file, in its order; a ConfigError says what to change."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The rules are not valid TOML: {error}.") from error
    strangers = ", ".join(sorted(document.keys() - {"rules"}))
    if strangers:
        raise ConfigError(
            f"Rules are written in [[rules]] tables; move or remove: {strangers}."
        )
    tables = document.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ConfigError("Write every rule as a table of its own, under [[rules]].")
    rules = tuple(_rule(table, place) for place, table in enumerate(tables, 1))
    ids = [rule.id for rule in rules]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"Two rules are called {twice!r}: give each an id of its own."
        )
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
            f"{known_as}: its pattern is not a regular expression: {error}. "
            "If plain words will do, put them in texts."
        ) from error
