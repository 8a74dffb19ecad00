"""
Job schedulers: whoever takes a job of one adds the next.

What cannot be added now, because the server is away, is added with the next call. A
worker that dies before leaves its job to another one, who adds the next then.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from deadletter.backends._redis.box import Box
from deadletter.backends._redis.link import Argument, surely
from deadletter.backends._redis.times import EPOCH

from .cron import read_cron, zone_of
from .jobs import Job
from .scripts import SCHEDULE

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_MILLISECOND: Final = timedelta(milliseconds=1)


class Ticks:
    """Jobs of schedulers that were taken from one queue."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._taken: dict[bytes, Job] = {}
        self._now: datetime | None = None

    def note(self, jobs: Sequence[Job], now: datetime | None) -> None:
        """Have the jobs added that follow those that have a scheduler."""
        taken = {job.id: job for job in jobs if job.scheduler}
        if taken:
            # On its way to the server before anything that ends these jobs.
            self._taken |= taken
            self._now = now
            self.start()

    def start(self) -> None:
        """Add what is to be added, whoever waits for something else."""
        if self._taken:
            self._box.link.start(self._go_on())

    async def _go_on(self) -> None:
        taken = list(self._taken.values())
        now, self._now = self._now, None
        if now is None:
            seconds, micros = await self._box.link.command("TIME")
            now = EPOCH + timedelta(seconds=int(seconds), microseconds=int(micros))
        words: list[Argument] = []
        for job in taken:
            words += job.id, job.scheduler, _next(job.options, now), job.options
        await surely(lambda _: self._box.ask(SCHEDULE, *words))
        for job in taken:
            self._taken.pop(job.id, None)


def _next(options: bytes, now: datetime) -> Argument:
    """The next time by a cron pattern, in milliseconds; empty if there is none."""
    try:
        told = _decode(options)
        rule = told["repeat"]
        cron, zone = read_cron(rule["pattern"]), zone_of(rule.get("tz"))
        known = (told.get("prevMillis"), rule.get("startDate"))
        times = [EPOCH + timedelta(milliseconds=one) for one in known if one]
        found = cron.next_after(max(now, *times, EPOCH), zone)
    except (LookupError, TypeError, ValueError, OverflowError, ZoneInfoNotFoundError):
        return ""
    except msgspec.MsgspecError:
        return ""
    return "" if found is None else (found.astimezone(UTC) - EPOCH) // _MILLISECOND
