"""What the demo shows: mailboxes, the latest events, problems, what to type next."""

from collections import deque
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


class Board:
    """Looks at the shop's office and mailboxes, and at what its workers tell."""

    def __init__(self, app: App, events: Path) -> None:
        self.caption = ""
        self.is_quiet = False
        self._app = app
        self._events = events
        self._read = 0
        self._latest: deque[Text] = deque(maxlen=9)
        self._queues: list[Any] = []
        self._groups: list[Any] = []

    async def look(self) -> None:
        """Take in how things stand now."""
        engine = await self._app.engine()
        letters = await self._app.letters()
        self._queues = list(await engine.broker.queues())
        self._groups = list(await letters.groups(limit=6))
        waiting = sum(
            q.ready + q.delayed + q.claimed + q.suspects for q in self._queues
        )
        self.is_quiet = waiting == 0
        self._follow()

    def view(self, width: int) -> RenderableType:
        """All of it, for a terminal."""
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
            Panel(Text(self.caption, "bold"), title="the shop", border_style="blue"),
            mailboxes,
            Panel(latest, title="latest", height=11, border_style="dim"),
            problems,
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
            ("dlq discard 'reason:undecodable' --reason 'broken producer'", ""),
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
        if kind not in STYLES or (kind == "succeeded" and event.get("attempt") == 1):
            return
        words = [kind.replace("-", " "), event.get("mailbox", "")]
        failure = event.get("failure") or {}
        if failure:
            words.append(f"{failure['code']}: {failure['text'].splitlines()[0]}")
        elif event.get("text"):
            words.append(event["text"])
        if kind == "retried":
            words.append(f"(attempt {event['attempt']}, again in {event['delay']:.1f} s)")
        if kind == "succeeded":
            words.append(f"at attempt {event['attempt']}")
        self._latest.append(Text("  ".join(words), STYLES[kind], no_wrap=True))
