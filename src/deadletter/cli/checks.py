"""dlq verify, doctor and alarms: checks now, and alarms for later."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cyclopts import App
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from deadletter.core.alerts import RULES
from deadletter.core.errors import ConfigError
from deadletter.core.text import clean
from deadletter.observe.alerts import alarms, prometheus_rules
from deadletter.observe.dashboard import dashboard
from deadletter.office.audit import check_anchors
from deadletter.office.doctor import Check, Health, examine, worst
from deadletter.office.verify import CONFLICTS, Conflicts, Verified
from deadletter.office.verify import verify as verify_office
from deadletter.ports import LetterStore
from deadletter.wiring.engines import key_ring

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import Flag, Several
from .ui import Name, bar, many, name_column, number, number_column, table

_STYLES: Final = {
    Health.OK: "green",
    Health.WARN: "yellow",
    Health.FAIL: "bold red",
    Health.SKIPPED: "dim",
}


async def verify(*, anchors: Path | None = None, desk: AtDesk) -> ExitCode:
    """
    Check that no message was lost: messages received = finished + still present.

    The exit code is 6 if messages are missing, duplicated or were changed. Letters whose
    message id or key was also used with another body are listed; none of them is lost.
    What could not be checked is reported.

    Args:
        anchors: A file of lines printed by `dlq audit head`: the audit must still have
            these entries (default: the file in the settings).
    """
    async with desk.engine() as engine:
        with bar(desk, "verifying", None):
            found = await verify_office(engine.broker, engine.letters)
            if engine.letters is not None:
                named = desk.settings.anchors.file
                found = await _with_anchors(found, anchors, named, engine.letters)
        counts = engine.broker.features.tallies
    code = ExitCode.OK if found.ok else ExitCode.CHECK_FAILED
    if desk.as_json:
        desk.document(
            {
                "ok": found.ok,
                "findings": found.findings,
                "unseen": found.unseen,
                "mailboxes": found.mailboxes,
                "letters": found.letters,
                "conflicts": found.conflicts,
            }
        )
        return code
    if found.mailboxes:
        shown = table()
        name_column(shown, "mailbox")
        for name in ("sent", "left it", "in it", "difference"):
            number_column(shown, name)
        for line in found.mailboxes:
            shown.add_row(
                Name(line.mailbox, "cyan"),
                number(line.sent),
                number(line.left),
                number(line.present),
                number(line.sent - line.left - line.present, "bold red"),
            )
        desk.show(shown)
    for finding in found.findings:
        desk.show(Text(f"✗ {clean(finding)}", style="red"))
    if found.ok:
        letters = f"{many(found.letters, 'letter')} add up; the audit is unbroken."
        if counts:
            total = sum(line.sent for line in found.mailboxes)
            desk.tell(f"✓ {many(total, 'message')} and {letters}", "green")
        else:  # without the sign, because messages are not counted
            desk.tell(letters)
    _show_conflicts(desk, found.conflicts)
    for text in found.unseen:
        desk.show(Text(clean(f"Not checked: {text}"), style="dim"))
    return code


async def _with_anchors(
    found: Verified, anchors: Path | None, named: str | None, store: LetterStore
) -> Verified:
    """Add findings of anchors, from the given file or from the file in the settings."""
    if anchors is None:
        if named is None:
            return found
        anchors = Path(named)
        if not anchors.exists():
            text = f"The file of anchors in the settings, {named}, does not exist yet."
            return replace(found, unseen=(*found.unseen, text))
    wrong = await check_anchors(_lines(anchors), store.audit)
    return replace(found, findings=(*found.findings, *wrong))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _show_conflicts(desk: Desk, found: Conflicts) -> None:
    if not found.total:
        return
    desk.show(
        Text(
            f"! {many(found.total, 'letter')} with an id or key that was also used with"
            f" another body, {found.open:,} still open:",
            style="yellow",
        )
    )
    for id_ in found.ids:
        desk.show(Text(f"  {id_}", style="cyan"))
    if found.total > len(found.ids):
        desk.show(Text(f"  and {found.total - len(found.ids):,} more", style="dim"))
    desk.hint(f"See them all: {desk.dlq} list {CONFLICTS!r}")


async def doctor(*, desk: AtDesk) -> ExitCode:
    """
    Check for common problems, and say what to do about each.

    The exit code is 6 if a check fails, and 0 if there are only warnings.
    """
    async with desk.engine() as engine:
        keys = None
        if engine.letters is not None and not engine.features.owns_fields:
            keys = await key_ring(engine.letters).keys()
        checks = await examine(engine, desk.clock, desk.file(), keys)
    return show_checks(desk, checks)


def show_checks(desk: Desk, checks: Sequence[Check]) -> ExitCode:
    """Print each check and its result; return 6 if a check failed."""
    failed = worst(checks) is Health.FAIL
    code = ExitCode.CHECK_FAILED if failed else ExitCode.OK
    if desk.as_json:
        for check in checks:
            desk.document(check)
        return code
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for check in checks:
        shown.add_row(
            Text(check.health, style=_STYLES[check.health]),
            Text(check.name),
            Text(clean(check.text)),
        )
    desk.show(shown)
    return code


alarms_app = App(
    name="alarms",
    help="Print Prometheus rules or a Grafana dashboard, or create CloudWatch alarms.",
    help_format="markdown",
)


@alarms_app.command
def prometheus(*, desk: AtDesk) -> None:
    """Print the alert rules for Prometheus, for its `rule_files`."""
    if desk.as_json:
        for rule in RULES:
            desk.document(rule)
    else:
        sys.stdout.write(prometheus_rules())


@alarms_app.command
def grafana(*, desk: AtDesk) -> None:
    """Print a dashboard to import into Grafana."""
    sys.stdout.write(dashboard())


@alarms_app.command
async def cloudwatch(
    *,
    source: Several = (),
    queue: Several = (),
    topic: str | None = None,
    put: Flag = False,
    region: str | None = None,
    endpoint: str | None = None,
    desk: AtDesk,
) -> None:
    """
    Print the CloudWatch alarms, one JSON document each, or create them.

    Workers with the observer `CloudWatch` publish the metrics of these alarms.

    Args:
        source: A mailbox to watch (default: all mailboxes of the office).
        queue: A dead-letter queue of SQS that should be empty.
        topic: The ARN of the SNS topic to notify.
        put: Create or update the alarms in CloudWatch.
        region: The AWS region (default: from the environment).
        endpoint: Another URL of the service, such as that of an emulator.
    """
    sources = source or await _sources(desk)
    wanted = alarms(sources=sources, queues=queue, topic=topic)
    if not put:
        for alarm in wanted:
            desk.document(alarm)
        return
    try:
        from deadletter.observe import cloudwatch as cloud  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"CloudWatch needs {error.name}: pip install 'deadletter[sqs]'"
        ) from error
    async with cloud.cloudwatch(region=region, endpoint=endpoint) as client:
        names = await cloud.put_alarms(client, sources=sources, queues=queue, topic=topic)
    if desk.as_json:
        desk.document({"alarms": names})
    else:
        desk.tell(f"{many(len(names), 'alarm')} created or updated.", "green")


async def _sources(desk: Desk) -> tuple[str, ...]:
    async with desk.engine() as engine:
        queues = [queue.options for queue in await engine.broker.queues()]
        counts = await engine.letters.counts() if engine.letters is not None else {}
    dead = {options.dead_queue for options in queues}
    live = {options.name for options in queues} - dead
    return tuple(sorted(live | set(counts)))
