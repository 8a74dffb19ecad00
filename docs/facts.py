"""Tables for the documentation, made from the code they describe."""

# ruff: noqa: INP001 -- a script's module, not a package

import asyncio
import inspect
import io
import logging
import re
import tempfile
import tokenize
from typing import Any, get_args

import msgspec
from ledger_facts import numbers_table, systems_table
from markdown import shown, table, wrapped
from msgspec import Struct
from profile_facts import profiles_table
from prometheus_client import CollectorRegistry

from deadletter import settings
from deadletter.brokers.bullmq.engine import FEATURES as BULLMQ
from deadletter.brokers.kafka.engine import FEATURES as KAFKA
from deadletter.brokers.nats.engine import FEATURES as NATS
from deadletter.brokers.rabbitmq.engine import FEATURES as RABBITMQ
from deadletter.brokers.redis.engine import FEATURES as REDIS
from deadletter.brokers.sqs.engine import FEATURES as SQS
from deadletter.cli.app import NAMES, ExitCode, build, code_for
from deadletter.core import campaign, errors, events, failure, letter
from deadletter.core import campaign as verdicts
from deadletter.core.alerts import RULES
from deadletter.core.policy import DISPOSITIONS, DLQPolicy
from deadletter.core.query.ast import Op
from deadletter.core.query.fields import FIELDS, Field
from deadletter.observe.logs import LEVELS
from deadletter.observe.metrics import Metrics
from deadletter.observe.office_metrics import OfficeMetrics
from deadletter.office.verbs import VERBS
from deadletter.ports import Features
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.stores.mongodb.engine import FEATURES as MONGODB
from deadletter.stores.postgresql.engine import FEATURES as POSTGRESQL
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import open_engine

__all__ = ["numbers_table", "profiles_table", "systems_table"]  # beside what is made here

SERVERS = {
    "postgresql": POSTGRESQL,
    "redis": REDIS,
    "bullmq": BULLMQ,
    "sqs": SQS,
    "kafka": KAFKA,
    "amqp": RABBITMQ,
    "nats": NATS,
    "mongodb": MONGODB,
}
ENGINES = ("memory://", "sqlite:///{}/a.db", "sqlite:///{}/b.db?synchronous=normal")


def first_line(thing: object) -> str:
    """What a thing is, in the words of its docstring, without line breaks."""
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def comments(kind: type) -> dict[str, str]:
    """What stands behind the fields of a class, as comments."""
    found: dict[str, str] = {}
    source = inspect.getsource(kind)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = re.match(r"\s*(\w+)\s*[:=]", token.line)
        if token.type == tokenize.COMMENT and name:
            found[name[1]] = token.string.removeprefix("#").strip()
    return found


# Meanings of what has no comment in the code.
_MEANINGS = {
    "work.processes": "processes that `dlq work` runs",
    "work.health_host": "where health checks are answered",
    "serve.oidc.client_secret": "the secret of the client at the provider; none for public ones",
    "serve.oidc.scopes": "what the provider is asked for",
    "serve.oidc.operators": "values of the role claim that make an operator",
    "serve.oidc.admins": "values of the role claim that make an administrator",
    "alerts.targets": "where alerts are sent; each is an [[alerts.targets]]",
    "alerts.targets[].kind": "how people are told",
    "alerts.targets[].server": "that takes e-mail; smtps:// and user:password",
    "retention_days.closed": "days closed letters are kept",
    "retention_days.replayed": "days replayed letters are kept",
    "retention_days.discarded": "days discarded letters are kept",
    "retention_days.ledger": "days an idempotency key is kept, finished or given up",
    "planned": "not sent yet",
    "ready": "will be sent",
    "durability": "what an acknowledged write survives",
    "keeps_letters": "it can be the office",
    "keeps_ledger": "handlers may be idempotent",
}


def settings_table() -> str:
    """Every setting, by its key."""
    return table(
        ["key", "variable", "must be", "unless set", "meaning"], _settings(settings.Settings)
    )


def _settings(kind: type[Struct], under: str = "") -> list[list[str]]:
    told, rows = comments(kind), []
    for field in msgspec.structs.fields(kind):
        key = f"{under}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            rows += _settings(field.type, f"{key}.")
            continue
        is_entry = "[]" in key or "NAME" in key  # sections have no variable each
        variable = settings.PREFIX + key.replace(".", "_").upper()
        meaning = told.get(field.name) or _MEANINGS[key]
        rows.append(
            [
                f"`{key}`",
                "" if is_entry else f"`{variable}`",
                settings.must_be(field.type),
                _unless(field.default),
                meaning,
            ]
        )
        if entries := settings.entries_of(field.type):
            is_named = settings.must_be(field.type).startswith("sections")
            rows += _settings(entries, f"{key}.NAME." if is_named else f"{key}[].")
    return rows


def _unless(default: object) -> str:
    if default in (None, (), {}) or default is msgspec.NODEFAULT:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def fields_table() -> str:
    """Every field of the search language."""
    return table(
        ["field", "about", "takes", "example"],
        ([_names(f), f.about, _takes(f), f"`{f.example}`"] for f in FIELDS.values()),
    )


def _names(field: Field) -> str:
    names = [f"{field.name}.…" if field.kind == "path" else field.name, *field.aliases]
    return ", ".join(f"`{name}`" for name in names)


def _takes(field: Field) -> str:
    if field.choices:
        return ", ".join([*field.choices, *(["an id"] if field.kind == "outage" else [])])
    kinds = {"exact": "text", "folded": "text, any case", "name": "a type's name"}
    takes = {
        "text": kinds.get(field.way, "part of a text, any case"),
        "number": "a whole number",
        "time": "a date or time" + (", or how long ago" if field.relative else ""),
        "duration": "a time span: 90s, 15m, 24h, 7d, 2w",
        "path": "text or a number",
    }[field.kind]
    compares = [op.value for op in field.ops if op is not Op.IS]
    return f"{takes}; {' '.join(compares)}" if compares else takes


def events_table() -> str:
    """Every event, with the level of its log line."""
    rows = []
    for kind in get_args(events.AnyEvent):
        told = comments(kind)
        fields = [
            f"`{name}`" + (f" ({told[name]})" if name in told else "")
            for name in kind.__struct_fields__
            if name != "mailbox"
        ]
        level = logging.getLevelName(LEVELS[kind]).lower()
        tag = kind.__struct_config__.tag
        name = f"`{kind.__name__}`"
        rows.append([f"`{tag}`", name, level, first_line(kind), ", ".join(fields)])
    return table(["line", "event", "level", "what happened", "fields"], rows)


def metrics_table() -> str:
    """Every metric."""
    registry = CollectorRegistry()
    Metrics(registry)
    clock = SystemClock()
    OfficeMetrics(registry, MemoryLetters(clock=clock, dice=SystemDice()), clock)
    rows = [
        [
            f"`{one._name}{'_total' if one._type == 'counter' else ''}`",  # noqa: SLF001 -- it tells nobody its labels
            one._type,  # noqa: SLF001
            ", ".join(one._labelnames),  # noqa: SLF001
            one._documentation,  # noqa: SLF001
        ]
        for one in registry._collector_to_names  # noqa: SLF001 -- nor what is in it
    ]
    return table(["metric", "kind", "labels", "meaning"], rows)


def alert_rules_table() -> str:
    """Every alert rule for Prometheus."""
    rows = [
        [f"`{rule.name}`", f"`{rule.expr}`", rule.lasting, str(rule.severity)] for rule in RULES
    ]
    return table(["alert", "when", "for", "severity"], rows)


def errors_table() -> str:
    """Every error, and the exit code `dlq` ends with."""
    rows = []
    for kind in _of_module(errors, errors.DeadLetterError):
        depth = len(kind.__mro__) - len(errors.DeadLetterError.__mro__)
        name = f"{'&nbsp;&nbsp;' * depth}`{kind.__name__}`"
        code = code_for(kind("…"))
        shown = "" if kind is errors.DeadLetterError else f"{code.value}"
        rows.append([name, first_line(kind), shown])
    return table(["error", "meaning", "exit code"], rows)


def signals_table() -> str:
    """What a handler may raise to decide for itself."""
    rows = []
    for kind in _of_module(errors, errors.Signal):
        if kind is not errors.Signal:
            signature = inspect.signature(kind.__init__)
            given = [p for p in signature.parameters.values() if p.name != "self"]
            call = ", ".join(str(p).partition(":")[0] for p in given)
            rows.append([f"`{kind.__name__}({call})`", " ".join(_doc(kind).split())])
    return table(["raise", "what happens"], rows)


def outcomes_table() -> str:
    """What may become of a letter in a replay."""
    told = comments(campaign.Outcome)
    return table(
        ["outcome", "meaning"],
        ([f"`{one}`", told.get(one.name) or _MEANINGS[one]] for one in campaign.Outcome),
    )


def verdicts_table() -> str:
    """What a plan may say of a letter."""
    told = comments(verdicts.Verdict)
    return table(
        ["verdict", "meaning"],
        ([f"`{one}`", told.get(one.name) or _MEANINGS[one]] for one in verdicts.Verdict),
    )


def patience_table() -> str:
    """When the default policy tries a message again, if it fails each time."""
    usual, since, rows = DLQPolicy(), 0.0, []
    for attempt in range(1, usual.allowed_attempts + 1):
        delay = usual.backoff.delay(attempt, 0.0)
        is_last = usual.is_spent(attempt)
        wait = "none: it is buried" if is_last else f"{delay:,.0f} s"
        rows.append([str(attempt), _long(since), wait])
        since += 0.0 if is_last else delay
    head = ["attempt", "after", "wait until the next, plus up to 20 % by chance"]
    said = (
        f"Without a policy of its own, a handler tries a message "
        f"{usual.allowed_attempts} times within {_long(since)} (`DLQPolicy()`), "
        "then it is a dead letter:"
    )
    return f"{said}\n\n{table(head, rows)}"


def _long(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def troubles_table() -> str:
    """Every kind of trouble, and what it usually leads to."""
    told = comments(failure.Trouble)
    return table(
        ["trouble", "meaning", "category", "usually"],
        (
            [f"`{one}`", told[one.name], f"`{one.category}`", f"`{DISPOSITIONS[one]}`"]
            for one in failure.Trouble
        ),
    )


def reasons_table() -> str:
    """Why a message became a dead letter."""
    return ", ".join(f"`{reason}`" for reason in failure.Reason)


def states_table() -> str:
    """Every state of a letter, and where it may go from there."""
    told = comments(letter.State)
    return table(
        ["state", "meaning", "may become"],
        (
            [
                f"`{one}`",
                told[one.name],
                ", ".join(f"`{to}`" for to in letter.State if to in letter.MOVES[one]),
            ]
            for one in letter.State
        ),
    )


def verbs_table() -> str:
    """Every verb of letters: what it does, with which ones, who may, and what undoes it."""
    return table(
        ["command", "does", "takes letters that are", "role", "undone by"],
        (
            [
                f"`dlq {verb.name}`",
                f"{verb.about}{' Requires a reason.' if verb.needs_reason else ''}",
                verb.states,
                f"`{verb.role}`",
                f"`dlq {verb.opposite}`" if verb.opposite else "",
            ]
            for verb in VERBS
        ),
    )


def statuses_table() -> str:
    """How a group may stand."""
    told = comments(letter.GroupStatus)
    return table(
        ["status", "meaning"], ([f"`{one}`", told[one.name]] for one in letter.GroupStatus)
    )


def exit_codes_table() -> str:
    """Every exit code, from the page that promises them."""
    doc = inspect.getdoc(ExitCode) or ""
    rows = re.findall(r"^(\d+) +(.*)$", doc, re.MULTILINE)
    assert {int(code) for code, _ in rows} == set(ExitCode)
    return table(["code", "meaning"], rows)


def guarantees_table() -> str:
    """What each engine promises."""
    with tempfile.TemporaryDirectory() as place:
        embedded = [asyncio.run(_features(url.format(place))) for url in ENGINES]
    engines = [*embedded, *SERVERS.values()]
    told = comments(Features)
    rows = [
        [
            f"`{name}`",
            told.get(name) or _MEANINGS[name],
            *(shown(getattr(f, name)) for f in engines),
        ]
        for name in Features.__struct_fields__
        if name != "engine"
    ]
    heads = ["`memory://`", "`sqlite:///…`", "`…?synchronous=normal`"]
    heads += [f"`{name}://`" for name in SERVERS]
    return table(["promise", "meaning", *heads], rows)


async def _features(url: str) -> Features:
    engine = await open_engine(url, office_durability="none")
    await engine.close()
    return engine.features


def commands_table() -> str:
    """Every command and its options, as `--help` tells them."""
    text = build(NAMES).generate_docs(output_format="markdown")
    text = text.replace("```console", "```text")
    first, *sections = re.split(r"(?m)^(?=## dlq)", text)
    # What can be given everywhere need not be said everywhere.
    everywhere = re.compile(r"\*\*Everywhere\*\*:\n\n(?:[* ] .*\n|    .*\n)+\n?")
    first = first[first.index("**Look**") :]
    return wrapped(first + "".join(everywhere.sub("", one) for one in sections).rstrip())


def _of_module(module: Any, base: type) -> list[type[Any]]:
    return [
        kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)
    ]


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""
