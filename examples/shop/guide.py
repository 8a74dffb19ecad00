"""The way through the console, from the first failure to a confirmed replay."""

from collections.abc import Sequence

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deadletter import App
from deadletter.core.campaign import Campaign, CampaignState, handled
from deadletter.core.letter import AuditEntry
from deadletter.office.groups import GroupLine

FIXED_IN = "1.8"
STEPS = (
    "Open the link. It works once; you are signed in.",
    "Groups: open the KeyError. Where, since when, in which version?",
    "Acknowledge it (a): others see that somebody looks after it.",
    f"Wait until the workers run {FIXED_IN}, which has the fix.",
    "Replay: read the plan, then send the first few.",
    "Watch: when they were handled, the rest follows by itself.",
    f"Resolve the group in {FIXED_IN}. If it dies again, it comes back as regressed.",
)
OPENED, _READ, ACKNOWLEDGED, DEPLOYED, SENT, HANDLED, RESOLVED = range(len(STEPS))


class Guide:
    """Ticks off the steps that the office shows as done."""

    def __init__(self, app: App, link: str) -> None:
        self.has_new_version = False
        self._app = app
        self.link = link
        self._done: set[int] = set()

    @property
    def is_finished(self) -> bool:
        """Whether the last step is done."""
        return RESOLVED in self._done

    async def look(self) -> None:
        """Take in which steps are done by now."""
        office = await self._app.office()
        replays = await office.store.campaigns(limit=20)
        groups = (await office.groups.list(everything=True)).groups
        self._done = steps_done(
            await office.latest_audit(limit=200), groups, replays, deployed=self.has_new_version
        )

    def view(self, *, brief: bool) -> Panel:
        """The steps, with those that are done ticked off; only the nearest one if brief."""
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(width=1)
        table.add_column(overflow="fold")
        nearest = min(set(range(len(STEPS))) - self._done, default=None)
        for number, text in enumerate(STEPS):
            mark, style = ("✓", "green") if number in self._done else (" ", "dim")
            if number == nearest:
                mark, style = "→", "bold"
            elif brief:
                continue
            table.add_row(Text(mark, style), Text(text, style))
        title = Text.assemble("the console: ", (self.link, "cyan underline"))
        return Panel(table, title=title, border_style="cyan")


def steps_done(
    entries: Sequence[AuditEntry],
    groups: Sequence[GroupLine],
    replays: Sequence[Campaign],
    *,
    deployed: bool,
) -> set[int]:
    """Return the steps that are done, as the office shows it."""
    done = set()
    if any(entry.action == "sign-in" for entry in entries):
        done.add(OPENED)
    bug = next((group for group in groups if "KeyError" in group.error_type), None)
    if bug is not None and (bug.owner or bug.status not in {"new", "regressed"}):
        done |= {_READ, ACKNOWLEDGED}
    if deployed:
        done.add(DEPLOYED)
    sent = [replay for replay in replays if replay.state is not CampaignState.PLANNED]
    if sent:
        done |= {_READ, SENT}
    if any(r.state is CampaignState.DONE and handled(r) for r in sent):
        done.add(HANDLED)
    if bug is not None and bug.status == "resolved":
        done.add(RESOLVED)
    return done
