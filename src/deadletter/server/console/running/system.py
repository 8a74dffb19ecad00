"""The system: is the office well, what does it promise, how is it set up."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.alerts import AlertTarget, TargetKind
from deadletter.core.text import many, span
from deadletter.office.doctor import Check, worst
from deadletter.office.doctor import Health as Light
from deadletter.office.upkeep import AlertTest, RetentionDue, RunState, VerifyRun
from deadletter.server import health
from deadletter.server.acting.upkeep import check_unlimited, checkup, target_name, upkeep_of
from deadletter.server.auth.guards import check_role, needs
from deadletter.server.console import words
from deadletter.server.console.pages import About, render_page, render_part
from deadletter.server.context import Here, ServerContext, Who
from deadletter.settings import Serve, describe_settings

Part: TypeAlias = Literal["health", "checks", "verify", "retention"]

_COUNTED: Final = 10_000  # letters that are due; more is `≥ 10,000`

_LIGHTS: Final = {
    health.Status.PASS: Light.OK,
    health.Status.WARN: Light.WARN,
    health.Status.FAIL: Light.FAIL,
}
_WELL: Final = {
    Light.OK: "Everything answers",
    Light.WARN: "It works, and somebody should look",
    Light.FAIL: "Something does not work",
}
_PROMISES: Final = (
    ("shared", "several processes use it at once"),
    ("ordered", "one consumer receives messages in the order in which they were sent"),
    ("counts_attempts", "counts attempts durably by itself"),
    ("keeps_history", "keeps the history of attempts with the message"),
    ("fences", "a worker that lost its lease changes nothing"),
    ("finds_suspects", "finds messages that lost workers held"),
    ("tallies", "counts messages sent and how they left, so that sums can be compared"),
    ("counts_deaths", "counts deaths over time, for charts"),
    ("keeps_ledger", "keeps a ledger of what was handled"),
)


class Line(Struct, frozen=True, kw_only=True):
    """One finding about the health of the server."""

    light: Light
    name: str
    text: str


class HealthRows(Struct, frozen=True, kw_only=True):
    """The health of this server in sentences."""

    light: Light
    headline: str
    lines: tuple[Line, ...]


class CheckRows(Struct, frozen=True, kw_only=True):
    """The checks of the doctor, those that need somebody first."""

    light: Light
    headline: str
    checks: tuple[Check, ...]


class VerifyPart(Struct, frozen=True, kw_only=True):
    """The state of verify on this server."""

    run: VerifyRun
    is_running: bool
    headline: str
    details: tuple[str, ...] = ()  # findings, or why it failed
    unseen: tuple[str, ...] = ()
    conflicts: int = 0  # still open


class RetentionPart(Struct, frozen=True, kw_only=True):
    """The letters that the retention would delete, and its last run."""

    found: RetentionDue
    is_running: bool
    headline: str
    rules: tuple[tuple[str, str], ...]
    last: str  # the last run in a sentence; empty if there was none
    is_least: bool  # there may be more letters than were counted


class AlertRow(Struct, frozen=True, kw_only=True):
    """One target of alerts; after a test, with what it answered."""

    kind: str
    to: str
    text: str = ""
    light: Light | None = None


class AlertRows(Struct, frozen=True, kw_only=True):
    """The targets of alerts, for administrators."""

    targets: tuple[AlertRow, ...]


class SystemPage(Struct, frozen=True, kw_only=True):
    """Everything that the page shows at once; the checks come later, as parts."""

    health: HealthRows
    facts: tuple[tuple[str, str], ...]
    promises: tuple[tuple[str, bool], ...]
    limits: tuple[tuple[str, str], ...]
    alerts: AlertRows
    settings: tuple[tuple[str, str, bool], ...]  # name, value, is it the default; for admins
    backup: str
    limited: bool  # sees some mailboxes only


@get("/system", guards=[needs(Role.READER)], include_in_schema=False)
async def show_system(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    part: Annotated[Part | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show how this server and its office are, or one part of it."""
    if part is not None:
        value = await _load_part(request, context, who, part)
        return render_part(request, f"running/parts/{part}.html", value)
    page = await load_system(request, context, who)
    about = About(title="System", screen="system", command="dlq doctor", api="/checks")
    return await render_page(request, "running/system.html", page, about)


@get("/system/checks", guards=[needs(Role.READER)], include_in_schema=False)
async def show_checks(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Show the checks of the doctor as a page, for browsers without scripts."""
    page = await load_checks(context, who)
    about = About(title="Checks", screen="system", command="dlq doctor", api="/checks")
    return await render_page(request, "running/checks.html", page, about)


@get("/system/retention", guards=[needs(Role.OPERATOR)], include_in_schema=False)
async def show_retention(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Show what the retention would delete, as a page for browsers without scripts."""
    page = await load_retention(request, who)
    about = About(title="Retention", screen="system", command="dlq retention", api="/retention")
    return await render_page(request, "running/retention.html", page, about)


async def load_system(
    request: Request[Any, Any, Any], context: ServerContext, who: Identity
) -> SystemPage:
    """Return what this person sees of the system."""
    features = context.engine.features
    facts = [("Version", request.app.state.console.version), ("Engine", features.engine)]
    if not who.sources:
        facts.append(("Office", context.home or features.engine))
    facts.append(("Durability", features.durability.value))
    return SystemPage(
        health=await load_health(request, context, who),
        facts=tuple(facts),
        promises=tuple((text, bool(getattr(features, name))) for name, text in _PROMISES),
        limits=limits_of(context.settings.serve),
        alerts=alert_rows(context),
        settings=(
            tuple(
                (name, context.home or text if name == "url" else text, is_default)
                for name, text, is_default in describe_settings(context.settings)
            )
            if who.may(Role.ADMIN) and not who.sources
            else ()
        ),
        backup=_backup(features.engine),
        limited=bool(who.sources),
    )


async def load_health(
    request: Request[Any, Any, Any], context: ServerContext, who: Identity
) -> HealthRows:
    """Return the health of this server in sentences; without names for limited callers."""
    found = health.judge(
        await health.probe_of(request, context).office(),
        context.complaints(),
        named=not who.sources,
        threshold=context.settings.depth_threshold,
    )
    lines = [
        Line(light=_LIGHTS[check.status], name=name.partition(":")[0], text=_sentence(name, check))
        for name, checks in found.checks.items()
        for check in checks
        if check.status is not health.Status.PASS or name == "office:deadLetters"
    ]
    if not any(line.name == "loop" for line in lines):
        lines.append(Line(light=Light.OK, name="loop", text="All loops of this server run."))
    light = _LIGHTS[found.status]
    return HealthRows(light=light, headline=_WELL[light], lines=tuple(lines))


async def load_checks(context: ServerContext, who: Identity) -> CheckRows:
    """Return the checks of the doctor, those that need somebody first."""
    checks = await checkup(context, who)
    order = (Light.FAIL, Light.WARN, Light.SKIPPED, Light.OK)
    wanting = [check for check in checks if check.health in {Light.FAIL, Light.WARN}]
    headline = f"{many(len(wanting), 'check')} of {len(checks)} need somebody"
    if len(wanting) == 1:
        headline = f"1 check of {len(checks)} needs somebody"
    return CheckRows(
        light=worst(checks),
        headline=headline if wanting else f"All {len(checks)} checks are fine",
        checks=tuple(sorted(checks, key=lambda check: order.index(check.health))),
    )


def load_verify(request: Request[Any, Any, Any]) -> VerifyPart:
    """Return the state of verify on this server."""
    run = upkeep_of(request.app.state).verification.run
    is_running = run.state is RunState.RUNNING
    if run.state is RunState.IDLE:
        text = "Not run since this server started"
        return VerifyPart(run=run, is_running=False, headline=text)
    if is_running:
        text = f"Step {run.done + 1} of {run.total}: {run.step}"
        return VerifyPart(run=run, is_running=True, headline=text)
    if run.found is None:
        return VerifyPart(run=run, is_running=False, headline="It failed", details=(run.problem,))
    sent = sum(line.sent for line in run.found.mailboxes)
    what = f"{many(run.found.letters, 'letter')} add up; the audit is unbroken"
    if run.found.mailboxes:
        what = f"{many(sent, 'message')} and {what}"
    found = many(len(run.found.findings), "finding")
    return VerifyPart(
        run=run,
        is_running=False,
        headline=what if run.found.ok else found,
        details=run.found.findings,
        unseen=run.found.unseen,
        conflicts=run.found.conflicts.open,
    )


async def load_retention(
    request: Request[Any, Any, Any], who: Identity, *, most: int | None = _COUNTED
) -> RetentionPart:
    """Return what the retention would delete, counted up to `most`, and its last run."""
    found = await upkeep_of(request.app.state).due(who, most=most)
    is_least = most is not None and found.due >= most
    run = found.run
    is_running = run.state is RunState.RUNNING
    last = ""
    if run.state is RunState.DONE and run.swept is not None:
        gone, used = many(run.swept.letters, "letter"), many(run.swept.ledger, "ledger key")
        last = f"The last run, by {run.actor}, deleted {gone} and {used}."
    elif run.state is RunState.FAILED:
        last = f"The last run, by {run.actor}, failed: {run.problem}"
    past = many(found.due, "letter is", "letters are")
    return RetentionPart(
        found=found,
        is_running=is_running,
        headline=(
            f"Deleting: {run.done:,} of {run.total:,}"
            if is_running
            else f"{'≥ ' if is_least else ''}{past} past their time, of {found.letters:,}"
        ),
        rules=(
            ("Closed, replayed, discarded", _days(found)),
            ("Ledger keys", f"{found.ledger:g} days"),
            ("By itself", _every(found.every)),
            ("Never deleted", "letters that nobody has decided on, or that wait for an outcome"),
        ),
        last=last,
        is_least=is_least,
    )


def limits_of(serve: Serve) -> tuple[tuple[str, str], ...]:
    """Return the limits of this server in words."""
    return (
        ("One request", f"{serve.body_limit / 1024 / 1024:g} MB"),
        ("A session", span(serve.session_hours * 3600)),
        ("One search", f"{serve.search_seconds:g} s, then what was found so far"),
        ("Costly searches", f"{serve.search_share:g} s a minute for each caller"),
        ("Failed sign-ins", "10 at once from one address, then one in 30 s"),
        ("Stopping", f"{serve.grace:g} s for requests in progress"),
    )


def tested_rows(results: Sequence[AlertTest]) -> AlertRows:
    """Return the targets of alerts with what they answered to a test."""
    return AlertRows(
        targets=tuple(
            AlertRow(
                kind=one.kind.value,
                to=one.to,
                text=one.text,
                light=Light.OK if one.accepted else Light.FAIL,
            )
            for one in results
        )
    )


def alert_rows(context: ServerContext) -> AlertRows:
    """Return the targets of alerts, without their secrets."""
    return AlertRows(
        targets=tuple(
            AlertRow(kind=target.kind.value, to=target_name(target), text=_signed(target))
            for target in context.settings.alerts.targets
        )
    )


def _signed(target: AlertTarget) -> str:
    if target.kind is not TargetKind.WEBHOOK:
        return ""
    return "signed" if target.secret else "not signed: it has no secret"


async def _load_part(
    request: Request[Any, Any, Any], context: ServerContext, who: Identity, part: Part
) -> Struct:
    match part:
        case "health":
            return await load_health(request, context, who)
        case "checks":
            return await load_checks(context, who)
        case "verify":
            check_unlimited(who, "verify adds up")
            return load_verify(request)
        case "retention":
            check_role(who, Role.OPERATOR)
            return await load_retention(request, who)


def _sentence(name: str, check: health.Check) -> str:
    whom = check.component_id if check.component_id != health.UNNAMED else "A mailbox"
    match name:
        case "office:deadLetters":
            ms = (check.observed_value or 0.0) * 1_000
            return check.output or f"The office answers, in {ms:.0f} ms."
        case "mailbox:openLetters":
            return f"{whom} has {many(int(check.observed_value or 0), 'open letter')}."
        case "mailbox:brake":
            return f"{whom}: {check.output or 'the brake stopped it'}"
        case "replay:unsettledLetters":
            count = many(int(check.observed_value or 0), "letter waits", "letters wait")
            return f"{count} for an outcome: {check.output}."
        case "loop:running":
            return (
                f"{check.component_id}: {check.output}" if check.output else "A loop has stopped."
            )
    return check.output


def _days(found: RetentionDue) -> str:
    days = [found.closed, found.replayed, found.discarded]
    return words.joined([f"{one:g}" for one in days]) + " days after their death"


def _every(hours: float | None) -> str:
    if hours is None:
        return "never: serve.retention_every is not set"
    return f"every {span(hours * 3600)}"


def _backup(engine: str) -> str:
    if engine == "sqlite":
        return (
            "Copy the file with SQLite's own means, never while it is in use with cp:"
            " a copy made that way is torn."
        )
    if engine == "memory":
        return "This office is in memory: it is gone when the server ends."
    return f"Back up {engine} as you back up other data in it; letters are ordinary rows there."


routes: Final[list[Any]] = [show_system, show_checks, show_retention]
