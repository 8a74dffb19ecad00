"""What the demo shows: mailboxes, the latest events, problems, what to type next."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deadletter import App

STYLES = {
    "succeeded": "green",
    "retried": "yellow",
    "buried": "bold red",
    "brake-opened": "bold magenta",
    "brake-closed": "bold green",
    "suspects-found": "cyan",
    "worker-started": "dim",
}


@dataclass
class Line:
    """Something that happened, once or several times in a row."""

    text: str
    style: str
    times: int = 1

    def __rich__(self) -> Text:
        again = f"  ({self.times} times)" if self.times > 1 else ""
        return Text(self.text + again, self.style, no_wrap=True, overflow="ellipsis")


class Board:
    """Looks at the shop's office and mailboxes, and at what its workers tell."""

    def __init__(self, app: App, events: Path) -> None:
        self.caption = ""
        self.is_quiet = False
        self._app = app
        self._events = events
        self._read = 0
        self._latest: deque[Line] = deque(maxlen=9)
        self._queues: list[Any] = []
        self._groups: list[Any] = []

    async def look(self) -> None:
        """Take in how things stand now."""
        engine = await self._app.engine()
        letters = await self._app.letters()
        self._queues = list(await engine.broker.queues())
        self._groups = list(await letters.groups(limit=6))
        waiting = sum(q.ready + q.delayed + q.claimed + q.suspects for q in self._queues)
        self.is_quiet = waiting == 0
        self._follow()

    def title(self) -> RenderableType:
        """What happens just now."""
        return Panel(Text(self.caption, "bold"), title="the shop", border_style="blue")

    def view(self) -> RenderableType:
        """Mailboxes, problems and the latest events, for a terminal."""
        mailboxes = Table(box=box.SIMPLE_HEAD, expand=True, title="Mailboxes")
        for name in ("mailbox", "waiting", "running", "handled", "buried"):
            mailboxes.add_column(name, justify="left" if name == "mailbox" else "right")
        for queue in self._queues:
            mailboxes.add_row(
                queue.options.name,
                str(queue.ready + queue.delayed + queue.suspects),
                str(queue.claimed),
                f"[green]{queue.tally.get('handled', 0)}[/]",
                f"[red]{queue.tally.get('buried', 0)}[/]",
            )
        problems = Table(box=box.SIMPLE_HEAD, expand=True, title="What broke, by cause")
        problems.add_column("letters", justify="right")
        problems.add_column("error", no_wrap=True)
        problems.add_column("text", overflow="ellipsis", no_wrap=True, ratio=1)
        for group in self._groups:
            error = group.error_type.rpartition(".")[2]
            text = Text(group.text.splitlines()[0] if group.text else "")
            problems.add_row(str(group.open), Text(error, "red"), text)
        latest = Group(*self._latest) if self._latest else Text("…", "dim")
        return Group(
            mailboxes, problems, Panel(latest, title="latest", height=11, border_style="dim")
        )

    def farewell(self, place: Path) -> RenderableType:
        """What to type next."""
        url = f"sqlite:///{place}/shop.db"
        lines = [
            ("export DLQ_URL=" + url, "the office of this demo"),
            ("dlq groups", "what broke, by cause"),
            ("dlq list 'is:pending error:KeyError'", "the letters of one cause"),
            ("dlq show ID", "one letter's whole story"),
            ("dlq replay 'error:KeyError' --dry-run", "what a replay would do"),
            ("dlq discard 'reason:undecodable' --reason junk", "throw some away, audited"),
            ("dlq verify", "nothing lost, nothing doubled"),
        ]
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for command, meaning in lines:
            table.add_row(Text(command, "cyan"), Text(meaning, "dim"))
        return Panel(table, title="try next (from this folder, with .venv/bin in PATH)")

    def _follow(self) -> None:
        if not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._tell(msgspec.json.decode(line))

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind not in STYLES or (kind == "succeeded" and event["attempt"] == 1):
            return
        text = _sentence(event)
        if self._latest and self._latest[-1].text == text:
            self._latest[-1].times += 1
        else:
            self._latest.append(Line(text, STYLES[kind]))


def _sentence(event: dict[str, Any]) -> str:
    """What happened, for somebody who sees it for the first time."""
    mailbox, failure = event.get("mailbox", ""), event.get("failure") or {}
    code = failure.get("code", "")
    match event["type"]:
        case "succeeded":
            return f"{mailbox}: went through at attempt {event['attempt']}"
        case "retried" if not event["charged"]:
            return f"{mailbox}: {code}, handed back, nobody is charged for an outage"
        case "retried":
            attempt, delay = event["attempt"], event["delay"]
            return f"{mailbox}: {code} at attempt {attempt}, again in {delay:.0f} s"
        case "buried":
            return f"{mailbox}: dead letter, {event['reason']}: {event['text']}"
        case "brake-opened":
            return f"{mailbox}: BRAKE ON, {event['text']}: fetching stops"
        case "brake-closed":
            return f"{mailbox}: brake off after {event['seconds']:.0f} s"
        case "suspects-found":
            lost = event["lost"]
            held = "1 delivery" if lost == 1 else f"{lost} deliveries"
            return f"a worker died with {held}: each runs alone now"
        case _:
            return "a worker process has started"
