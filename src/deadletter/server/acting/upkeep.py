"""Upkeep of the office: checks, verify and retention in the background, tests of alerts."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from litestar.datastructures import State
from litestar.exceptions import PermissionDeniedException

from deadletter.core.access import Identity
from deadletter.core.alerts import Alert, AlertKind, AlertTarget, TargetKind
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.observe.notifications import Notice, NotificationFailed, notifier_for
from deadletter.office.doctor import Check, examine
from deadletter.office.upkeep import VERIFY_STEPS, AlertTest, RetentionDue, RetentionRun, VerifyRun
from deadletter.server.context import ServerContext
from deadletter.wiring.chores import retention_of

from .errands import Errand

_ACCEPTED: Final = {
    TargetKind.WEBHOOK: "the webhook answered that it took the notice",
    TargetKind.SLACK: "the chat answered that it took the notice",
    TargetKind.EMAIL: "the mail server took the notice; whether it arrives is not known here",
}
_TEST: Final = "This is a test: somebody tries whether alerts of deadletter arrive here."


class Upkeep:
    """The work in the background of one server that people start."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.verification = Errand("verify", VerifyRun(), context.clock)
        self.sweeping = Errand("the retention", RetentionRun(), context.clock)
        self._testing = asyncio.Lock()

    def verify(self, who: Identity) -> VerifyRun:
        """Start `verify`; raises Conflict while it is in progress."""
        check_unlimited(who, "verify adds up")
        office = self._context.office

        async def work(errand: Errand[VerifyRun]) -> dict[str, Any]:
            def step() -> None:
                done = errand.run.done + 1
                errand.note(done=done, step="".join(VERIFY_STEPS[done : done + 1]))

            return {"found": await office.verify(on_step=step), "done": len(VERIFY_STEPS)}

        fresh = VerifyRun(actor=who.name, step=VERIFY_STEPS[0], total=len(VERIFY_STEPS))
        return self.verification.start(fresh, work)

    async def due(self, who: Identity, *, most: int | None = None) -> RetentionDue:
        """Return what the retention would delete now, counted up to `most` letters."""
        check_unlimited(who, "the retention covers")
        settings = self._context.settings
        days = settings.retention_days
        counts = await self._context.store.counts()
        return RetentionDue(
            due=await retention_of(self._context.office, days).due(most=most),
            letters=sum(sum(states.values()) for states in counts.values()),
            closed=days.closed,
            replayed=days.replayed,
            discarded=days.discarded,
            ledger=days.ledger,
            every=settings.serve.retention_every,
            run=self.sweeping.run,
        )

    async def sweep(
        self, who: Identity, *, expect: int | None, force: bool, reason: str
    ) -> RetentionRun:
        """
        Start the retention: it deletes letters whose time is over, for good.

        Raises Conflict while it is in progress, or if more letters than `expect` are due.
        """
        check_unlimited(who, "the retention covers")
        retention = retention_of(self._context.office, self._context.settings.retention_days)
        due = await retention.due()
        if expect is not None and due > expect:
            raise Conflict(
                f"{many(due, 'letter is', 'letters are')} past their time now, not {expect:,}:"
                " nothing was deleted. Look again"
            )

        async def work(errand: Errand[RetentionRun]) -> dict[str, Any]:
            def advance(gone: int) -> None:
                errand.note(done=errand.run.done + gone)

            by = who.by(reason or "retention")
            return {"swept": await retention.run(by, force=force, on_progress=advance)}

        fresh = RetentionRun(actor=who.name, step="deleting", total=due)
        return self.sweeping.start(fresh, work)

    async def test_alerts(self, who: Identity, reason: str = "") -> Sequence[AlertTest]:
        """
        Send a test notice to each target of the settings; return what each answered.

        Raises Conflict if there are no targets, or while another test is in progress.
        """
        targets = self._context.settings.alerts.targets
        if not targets:
            raise Conflict("the settings have no alerts.targets: add one, and restart the server")
        if self._testing.locked():
            raise Conflict("a test of the alerts is in progress: wait until it has ended")
        async with self._testing:
            notice = self._notice(who)
            found = await asyncio.gather(*(_try(target, notice) for target in targets))
        accepted = sum(one.accepted for one in found)
        detail = f"{many(len(found), 'target')}, {accepted} accepted the notice"
        await self._context.store.record("test-alerts", "alerts", By(who.name, reason), detail)
        return found

    async def close(self) -> None:
        """Cancel everything in progress."""
        await self.verification.close()
        await self.sweeping.close()

    def _notice(self, who: Identity) -> Notice:
        now = self._context.clock.now()
        id_ = f"test-{self._context.dice.new_id()}"
        alert = Alert(
            id=id_,
            kind=AlertKind.TEST,
            text=f"{_TEST} Sent by {who.name}.",
            source="",
            count=1,
            first_seen=now,
            last_seen=now,
        )
        return Notice(id=id_, at=now, alerts=(alert,))


async def checkup(context: ServerContext, who: Identity) -> Sequence[Check]:
    """Return the checks of `dlq doctor`."""
    check_unlimited(who, "these checks cover")
    keys = None
    if not context.engine.features.owns_fields:
        keys = await context.office.ring.keys()
    return await examine(context.engine, context.clock, context.file, keys)


def check_unlimited(who: Identity, what: str) -> None:
    """Raise 403 for a caller who may see some mailboxes only."""
    if who.sources:
        raise PermissionDeniedException(
            f"{what} all mailboxes: use a token without a limit to mailboxes"
        )


def upkeep_of(state: State) -> Upkeep:
    """Return the upkeep of an application, by its state."""
    if "upkeep" not in state:
        state.upkeep = Upkeep(state.context)
    known: Upkeep = state.upkeep
    return known


def target_name(target: AlertTarget) -> str:
    """Return a target in words, without its secrets: paths of webhooks are secret."""
    if target.kind is TargetKind.EMAIL:
        return target.to
    try:
        url = urlsplit(target.to)
        port = f":{url.port}" if url.port else ""
    except ValueError:
        return "an invalid URL"
    return f"{url.scheme}://{url.hostname or ''}{port}"


async def _try(target: AlertTarget, notice: Notice) -> AlertTest:
    accepted, text = True, _ACCEPTED[target.kind]
    try:
        await notifier_for(target).notify(notice)
    except (ConfigError, NotificationFailed) as error:
        accepted, text = False, f"not delivered: {error}"
    return AlertTest(kind=target.kind, to=target_name(target), accepted=accepted, text=text)
