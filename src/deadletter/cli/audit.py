"""dlq audit: list the audit, print its end as an anchor, and renew seals."""

from datetime import timedelta
from pathlib import Path

from cyclopts import App

from deadletter.core.errors import ConfigError
from deadletter.core.query.fields import duration
from deadletter.core.seals import ACCEPTED
from deadletter.core.text import clean
from deadletter.office.audit import AuditFilter, anchor, append_anchor, head
from deadletter.ports import Examining, Reconciles

from .app import ExitCode
from .desk import AtDesk
from .options import Reason, Shown
from .ui import cell, local, many, table, text_column

app = App(name="audit", help_format="markdown")


@app.default
async def audit(
    target: str | None = None,
    /,
    *,
    by: str | None = None,
    action: str | None = None,
    since: str | None = None,
    limit: Shown = 50,
    desk: AtDesk,
) -> None:
    """
    List who did what, newest first, including purges.

    Args:
        target: Only entries about this letter, group, queue or replay.
        by: Only entries of this person.
        action: Only this action, such as purge, move, replay, edit or reveal.
        since: Only entries of the last 24h, 7d or another time.
        limit: The most entries to list.
    """
    wanted = AuditFilter(
        target=target,
        actor=by,
        action=action,
        since=desk.clock.now() - _span(since) if since else None,
    )
    async with desk.office() as office:
        found = await office.latest_audit(wanted, limit=limit)
    if desk.as_json:
        for entry in found:
            desk.document(entry)
        return
    if not found:
        desk.tell("The audit is empty." if wanted == AuditFilter() else "No audit entry matches.")
        return
    shown = table()
    for name in ("when", "who", "did", "to", "why"):
        text_column(shown, name)
    for entry in found:
        why = " · ".join(part for part in (entry.reason, entry.detail) if part)
        shown.add_row(
            cell(local(entry.at)),
            cell(clean(entry.actor)),
            cell(clean(entry.action)),
            cell(clean(entry.target)),
            cell(clean(why)),
        )
    desk.show(shown)


@app.command(name="head")
async def head_(*, append: Path | None = None, desk: AtDesk) -> None:
    """
    Print the end of the audit: the number of the last entry, and its seal.

    Store the line where nobody with access to the database can write. Later, `dlq verify
    --anchors FILE` uses it to detect whether the audit was truncated or rewritten.

    Args:
        append: Also append the line to this file.
    """
    async with desk.office() as office:
        last = await head(office.latest_audit)
    line = anchor(last)
    if append is not None:
        _append(append, line)
    if desk.as_json:
        seq, hash_ = (last.seq, last.hash) if last else (0, "")
        desk.document({"seq": seq, "seal": hash_})
        return
    desk.tell(line)


@app.command
async def seal(*, reason: Reason = "", desk: AtDesk) -> ExitCode:
    """
    Seal letters that have no seal, or a seal without the current key.

    Also accepts audit entries that were sealed without the key. Run `dlq verify` and `dlq
    audit` first: earlier changes are accepted as they are. Letters that do not match their
    seal are not sealed again.

    Args:
        reason: Why; recorded in the audit.
    """
    async with desk.engine() as engine:
        store = engine.letters
        if not isinstance(store, Examining):
            raise ConfigError(
                "this office has no seals: name an office in SQLite, PostgreSQL or MongoDB"
                " with --office"
            )
        if isinstance(engine.broker, Reconciles):
            await engine.broker.rekey()
        sealed, after = 0, ""
        while True:
            some = await store.reseal(after)
            sealed += some.sealed
            if some.after is None:
                break
            after = some.after
        by = desk.by(reason)
        await store.record(ACCEPTED, "audit", by, f"{sealed} letters sealed")
    if desk.as_json:
        desk.document({"sealed": sealed})
    else:
        desk.tell(f"{many(sealed, 'letter')} sealed in their current form.")
    return ExitCode.OK


def _append(path: Path, line: str) -> None:
    try:
        append_anchor(path, line)
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {error.strerror}") from error


def _span(text: str) -> timedelta:
    span = duration(text)
    if span is None:
        raise ConfigError(f"--since must be a time such as 90s, 24h or 7d, got {text!a}")
    return span
