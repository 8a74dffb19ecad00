"""
Job schedulers of BullMQ: the worker that takes a scheduled job adds the next one.

If the server is unreachable, the next job is added with a later call. If the worker dies
before, the next worker that takes the job adds it.
"""

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Struct

from deadletter.brokers.redis_common.mailboxes import MailboxClient
from deadletter.brokers.redis_common.script_runner import Argument, retry_unanswered
from deadletter.kit import EPOCH

from .jobs import Job
from .scripts import SCHEDULE

# Cron patterns are read as BullMQ's parser reads them: five fields, or six with seconds
# first; names of months and days; `L`, `5L` and `5#2` for days; macros such as `@daily`.
_MACROS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
    "@minutely": "0 * * * * *",
    "@secondly": "* * * * * *",
    "@weekdays": "0 0 0 * * 1-5",
    "@weekends": "0 0 0 * * 0,6",
}
_RANGES: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART: Final = re.compile(r"(\*|\?|(\d+)(?:-(\d+))?)(?:/(\d+))?\Z")
_NTH: Final = re.compile(r"([0-7])(?:#([1-5])|l)\Z")
_YEARS: Final = 8  # to look ahead for a matching day


class Cron(Struct, frozen=True):
    """A cron pattern."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]  # weekday, which of the month; 0 is the last
    last_day: bool
    any_day: bool  # no day of the month is named
    any_weekday: bool

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first matching time after `after`, in a time zone; None if there is none."""
        if len(self.hours) == 24:
            # Every hour is one, also the one that clocks show twice.
            zone = timezone(after.astimezone(zone).utcoffset() or timedelta())
        here = after.astimezone(zone).replace(tzinfo=None, microsecond=0)
        for wall in self._walls(here):
            found = wall.replace(tzinfo=zone).astimezone(UTC)
            if found > after:
                return found
        return None

    def _walls(self, start: datetime) -> Iterator[datetime]:
        day = start.replace(hour=0, minute=0, second=0)
        end = day.year + _YEARS
        while day.year < end:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._fits(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        for second in sorted(self.seconds):
                            wall = day.replace(hour=hour, minute=minute, second=second)
                            if wall >= start:
                                yield wall
            day += timedelta(days=1)

    def _fits(self, day: datetime) -> bool:
        last = monthrange(day.year, day.month)[1]
        weekday, which = day.isoweekday() % 7, (day.day + 6) // 7
        is_last = day.day + 7 > last
        by_month = day.day in self.days or (self.last_day and day.day == last)
        by_week = (
            weekday in self.weekdays
            or (weekday, which) in self.nth
            or (is_last and (weekday, 0) in self.nth)
        )
        if self.any_day or self.any_weekday:
            return (self.any_day or by_month) and (self.any_weekday or by_week)
        return by_month or by_week


def read_cron(pattern: str) -> Cron:
    """Read a pattern; raise ValueError if it is invalid."""
    fields = _MACROS.get(pattern.strip(), pattern).lower().split()
    if not 5 <= len(fields) <= 6:
        raise ValueError(f"a cron pattern has 5 or 6 fields, got {pattern!a}")
    fields = ["0", *fields] if len(fields) == 5 else fields
    *times, days, months, weekdays = fields
    months = _numbered(months, _MONTHS, 1)
    weekdays = _numbered(weekdays, _DAYS, 0)
    seconds, minutes, hours = (
        frozenset(_numbers(field, *limits)) for field, limits in zip(times, _RANGES, strict=False)
    )
    day_parts = [part for part in days.split(",") if part != "l"]
    week_parts = [part for part in weekdays.split(",") if not _NTH.match(part)]
    nth = (_NTH.match(part) for part in weekdays.split(","))
    return Cron(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=frozenset(_all(day_parts, *_RANGES[3])),
        months=frozenset(_numbers(months, *_RANGES[4])),
        weekdays=frozenset(day % 7 for day in _all(week_parts, *_RANGES[5])),
        nth=frozenset((int(m[1]) % 7, int(m[2] or 0)) for m in nth if m),
        last_day="l" in days.split(","),
        any_day=days in {"*", "?"},
        any_weekday=weekdays in {"*", "?"},
    )


def zone_of(name: str | None) -> tzinfo:
    """Return a time zone by its name; UTC without a name."""
    return ZoneInfo(name) if name else UTC


def _numbered(field: str, names: Sequence[str], first: int) -> str:
    for number, name in enumerate(names, first):
        field = field.replace(name, str(number))
    return field


def _all(parts: list[str], low: int, high: int) -> Iterator[int]:
    for part in parts:
        yield from _numbers(part, low, high)


def _numbers(field: str, low: int, high: int) -> Iterator[int]:
    for part in field.split(","):
        match = _PART.match(part)
        if match is None:
            raise ValueError(f"unknown part {part!a} in a cron pattern")
        every, start, end, step = match.groups()
        first, last = (low, high) if start is None else (int(start), int(start))
        if end is not None:
            last = int(end)
        elif start is not None and step is not None:
            last = high
        by = int(step or 1)
        if not (low <= first <= high and low <= last <= high and by and every):
            raise ValueError(f"{part!a} is out of range in a cron pattern")
        if first > last:  # as fri-mon
            yield from range(first, high + 1, by)
            yield from range(low, last + 1, by)
        else:
            yield from range(first, last + 1, by)


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_MILLISECOND: Final = timedelta(milliseconds=1)


class ScheduledJobs:
    """Scheduled jobs taken from one queue, whose next jobs are to be added."""

    def __init__(self, client: MailboxClient) -> None:
        self._client = client
        self._taken: dict[bytes, Job] = {}
        self._now: datetime | None = None

    def note(self, jobs: Sequence[Job], now: datetime | None) -> None:
        """Add the next job of every job that has a scheduler."""
        taken = {job.id: job for job in jobs if job.scheduler}
        if taken:
            # On its way to the server before anything that ends these jobs.
            self._taken |= taken
            self._now = now
            self.start()

    def start(self) -> None:
        """Start adding pending jobs in the background."""
        if self._taken:
            self._client.runner.start(self._go_on())

    async def _go_on(self) -> None:
        taken = list(self._taken.values())
        now, self._now = self._now, None
        if now is None:
            seconds, micros = await self._client.runner.command("TIME")
            now = EPOCH + timedelta(seconds=int(seconds), microseconds=int(micros))
        words: list[Argument] = []
        for job in taken:
            words += job.id, job.scheduler, _next(job.options, now), job.options
        await retry_unanswered(lambda _: self._client.ask(SCHEDULE, *words))
        for job in taken:
            self._taken.pop(job.id, None)


def _next(options: bytes, now: datetime) -> Argument:
    """Return the next time of a cron pattern in milliseconds; empty if there is none."""
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
