"""
A letter store in one file: letters in memory, every change a line of JSON on the disk.

A change is written and synced before it is made, so a crash loses nothing. Opening the
store makes all changes again, each at its own time. The rules are those of `MemoryLetters`,
which is correct and simple; only the journal is new.
"""

import inspect
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from deadletter.core.errors import DeadLetterError
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.stores.memory.letters import MemoryLetters

CHANGES = (
    *("keep", "move", "note", "edit", "purge", "expire", "record", "reseal", "set_group"),
    *("regroup", "set_group_rules", "plan_replay", "set_campaign", "settle_replays"),
    *("release_windows", "take_replay", "sent_replay", "save_window", "signing_key"),
    *("freeze_replay", "change_plan", "approve_replay"),
    *("save_search", "delete_search"),
)
"""The methods of a letter store that change something"""


class JournalClock:
    """A clock that shows the time of a line while the journal is read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.line: datetime | None = None

    def now(self) -> datetime:
        """Return the time."""
        return self.line or self._clock.now()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._clock.monotonic()


class JournalLetters(MemoryLetters):
    """Letters of one process, kept in a journal."""

    def __init__(self, path: Path, *, clock: Clock, dice: Dice) -> None:
        self._time = JournalClock(clock)
        super().__init__(clock=self._time, dice=dice)
        self.features = Features(engine="journal", durability=Durability.POWER_SAFE, shared=False)
        self._file = path.open("a+b")

    async def read_journal(self) -> None:
        """Make all changes of the journal again; an incomplete last line is removed."""
        self._file.seek(0)
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            end += len(line)
            at, per_day, name, given = json.loads(line.decode("utf-8", "surrogatepass"))
            self._time.line, self.group_limit.per_day = datetime.fromisoformat(at), per_day
            method = getattr(MemoryLetters, name)
            kinds = get_type_hints(method)
            values = {k: msgspec.convert(v, kinds[k], strict=False) for k, v in given.items()}
            with suppress(DeadLetterError):  # it was raised then as well
                await method(self, **values)
        self._time.line = None
        self._file.truncate(end)

    def write_line(self, name: str, given: dict[str, Any]) -> None:
        """Append a change to the journal; return once it is on the disk."""
        values = msgspec.to_builtins(given, str_keys=True)
        line = [self._time.now().isoformat(), self.group_limit.per_day, name, values]
        text = json.dumps(line, ensure_ascii=False)
        self._file.write(text.encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the journal."""
        self._file.close()


def _journalled(name: str) -> Callable[..., Awaitable[Any]]:
    method = getattr(MemoryLetters, name)
    signature = inspect.signature(method)

    @wraps(method)
    async def change(self: JournalLetters, *args: Any, **options: Any) -> Any:
        given = dict(signature.bind(self, *args, **options).arguments)
        del given["self"]
        self.write_line(name, given)
        return await method(self, **given)

    return change


for _name in CHANGES:
    setattr(JournalLetters, _name, _journalled(_name))


async def open_letters(path: Path, *, clock: Clock, dice: Dice) -> JournalLetters:
    """Open the letters of a journal; the file is created if it is missing."""
    letters = JournalLetters(path, clock=clock, dice=dice)
    await letters.read_journal()
    return letters
