"""The story of a letter: attempts, people, programs and replays on one time scale."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from math import log1p
from typing import Final

from msgspec import Struct, structs

from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.letter import error_name
from deadletter.core.replay_rules import OUT
from deadletter.core.text import many, span
from deadletter.office.view import Kind, Moment, act_text
from deadletter.server.console.bounds import shortened

WIDE: Final = 1_000  # units of the drawing
_FIRST: Final = 10  # moments that are always told
_LAST: Final = 40
_TEXT: Final = 400  # bytes of HTML of one text
_OUTCOMES: Final = {
    Outcome.CONFIRMED: "handled",
    Outcome.PRESUMED: "presumed handled: it did not fail again in time",
    Outcome.FAILED: "failed again",
    Outcome.REFUSED: "refused: the target server does not accept it",
    Outcome.SENT: "sent, no outcome yet",
    Outcome.SENDING: "being sent",
    Outcome.WAITING: "waiting for an earlier letter of its key",
    Outcome.UNCONFIRMED: "sent, no longer waiting for an outcome",
    Outcome.PLANNED: "not sent yet",
    Outcome.HELD: "held back: an earlier letter of its key was not confirmed",
    Outcome.SKIPPED: "skipped: not open any more, past the cap, or processed",
}


class StoryRow(Struct, frozen=True, kw_only=True):
    """One moment in words."""

    at: datetime
    kind: str
    time: str
    day: str = ""  # if it is not that of the row before
    who: str = ""
    text: str = ""
    error: str = ""
    reason: str = ""
    is_other_error: bool = False  # than that of the attempt before
    replay: str = ""  # the id of a replay to look at
    attempt: int = 0  # the place of its stack among the attempts, from 1
    note: str = ""


class Bar(Struct, frozen=True, kw_only=True):
    """One moment in the drawing."""

    lane: str  # attempts, acts, replays
    look: str
    x: int
    width: int
    title: str


class StoryLines(Struct, frozen=True, kw_only=True):
    """A story in words and drawn."""

    rows: tuple[StoryRow, ...]
    bars: tuple[Bar, ...]
    left_out: int  # moments between the first and the last rows
    more: bool  # the audit has more acts
    began: datetime
    ended: datetime
    about: str  # the drawing in a sentence


def story_of(
    moments: Sequence[Moment], attempts: Sequence[Attempt], *, more: bool = False
) -> StoryLines:
    """Return a story as a page shows it."""
    rows: list[StoryRow] = []
    places = {id(one): place for place, one in enumerate(attempts, 1)}
    error = ""
    for moment in moments:
        row = _row(moment)
        attempt = moment.attempt
        if attempt is not None and attempt.outcome != "cut":
            is_other = bool(error) and attempt.error_type != error
            place = _place(attempt, attempts, places)
            row = structs.replace(
                row, is_other_error=is_other, attempt=place if attempt.stack else 0
            )
            error = attempt.error_type
        rows.append(row)
    rows = _folded(rows)
    left_out = max(0, len(rows) - _FIRST - _LAST)
    shown = [*rows[:_FIRST], *rows[len(rows) - _LAST :]] if left_out else rows
    ends = [moment.at for moment in moments]
    return StoryLines(
        rows=tuple(_with_days(shown)),
        bars=tuple(_bars(moments)),
        left_out=left_out,
        more=more,
        began=min(ends),
        ended=max(ends),
        about=_about(moments),
    )


_RUN: Final = 4  # attempts with the same error from which those in between are folded


def _folded(rows: Sequence[StoryRow]) -> list[StoryRow]:
    """Return the rows with runs of attempts that failed alike told by the first and the last."""
    found: list[StoryRow] = []
    for (kind, _), group in groupby(rows, key=lambda row: (row.kind, row.error)):
        run = list(group)
        if kind != Kind.ATTEMPT or len(run) < _RUN:
            found += run
            continue
        pauses = [(after.at - before.at).total_seconds() for before, after in pairwise(run)]
        text = f"{many(len(run) - 2, 'attempt')} more with the same error, {_paused(pauses)}"
        found += [run[0], StoryRow(at=run[1].at, kind="cut", time=run[1].time, text=text), run[-1]]
    return found


def _paused(seconds: Sequence[float]) -> str:
    least, most = span(min(seconds)), span(max(seconds))
    return f"{least} apart" if least == most else f"{least} to {most} apart"


def _place(attempt: Attempt, attempts: Sequence[Attempt], places: dict[int, int]) -> int:
    known = places.get(id(attempt))
    if known is not None:
        return known
    return next((place for place, one in enumerate(attempts, 1) if one == attempt), 0)


def _with_days(rows: Sequence[StoryRow]) -> list[StoryRow]:
    found, before = [], ""
    for row in rows:
        day = f"{row.at.astimezone(UTC):%Y-%m-%d}"
        found.append(structs.replace(row, day="" if day == before else day))
        before = day
    return found


def _row(moment: Moment) -> StoryRow:
    row = StoryRow(at=moment.at, kind=moment.kind, time=f"{moment.at.astimezone(UTC):%H:%M:%S}")
    if moment.attempt is not None:
        return _attempt(row, moment.attempt)
    if moment.act is not None:
        entry = moment.act
        return structs.replace(
            row,
            who=shortened(entry.actor, 200),
            text=shortened(act_text(entry), _TEXT),
            reason=shortened(entry.reason, _TEXT),
        )
    if moment.replay is not None:
        return _replay(row, moment, moment.replay)
    text = shortened(moment.text, _TEXT)
    match moment.kind:
        case Kind.SENT:
            return structs.replace(row, text=f"sent to {text}")
        case Kind.RECEIVED:
            return structs.replace(row, text="received for the first time")
        case _:
            return structs.replace(row, text=f"died: {text}" if text else "died")


def _attempt(row: StoryRow, attempt: Attempt) -> StoryRow:
    if attempt.outcome == "cut":
        return structs.replace(row, kind="cut", text=shortened(attempt.text, _TEXT))
    number = f" {attempt.number}" if attempt.number else ""
    generation = f"replay {attempt.generation}, " if attempt.generation else ""
    after = f" after {span(attempt.seconds)}" if attempt.seconds else ""
    name = error_name(attempt.error_type)
    error = ": ".join(part for part in (name, attempt.text) if part)
    by = " · ".join(
        part for part in (attempt.worker, attempt.version and f"version {attempt.version}") if part
    )
    return structs.replace(
        row,
        text=f"{generation}attempt{number} {attempt.outcome}{after}",
        error=shortened(error, _TEXT),
        note=shortened(by, 200),
    )


def _replay(row: StoryRow, moment: Moment, item: ReplayItem) -> StoryRow:
    name = f"replay {item.generation}" if item.generation else "replay"
    if moment.kind is Kind.OUTCOME:
        return structs.replace(
            row,
            text=f"{name} {_OUTCOMES[Outcome(moment.text)]}",
            reason=shortened(item.why, _TEXT),
            replay=item.campaign,
        )
    note = ""
    if moment.given_up:
        note = "sent again without waiting for its outcome"
    elif item.outcome in OUT:
        note = _OUTCOMES[item.outcome]
    return structs.replace(
        row,
        who=shortened(item.actor, 200),
        text=shortened(f"sent it back to {moment.text}", _TEXT),
        reason=shortened(item.reason, _TEXT),
        replay=item.campaign,
        note=note,
    )


def _about(moments: Sequence[Moment]) -> str:
    counts = {
        "attempt": sum(one.kind is Kind.ATTEMPT for one in moments),
        "death": sum(one.kind is Kind.DIED for one in moments),
        "replay": sum(one.kind is Kind.REPLAY for one in moments),
        "act": sum(one.kind is Kind.ACT for one in moments),
    }
    told = [many(count, name) for name, count in counts.items() if count]
    return f"{', '.join(told)}, from the first to the last; long pauses are shortened"


_LANES: Final = {
    Kind.ATTEMPT: "attempts",
    Kind.DIED: "attempts",
    Kind.ACT: "acts",
    Kind.REPLAY: "replays",
    Kind.OUTCOME: "replays",
}
_MOST_BARS: Final = 120


def _bars(moments: Sequence[Moment]) -> list[Bar]:
    """Return the drawing: pauses shortened, so that seconds stay visible beside days."""
    if len(moments) < 2:
        return []
    some = moments[:_MOST_BARS]
    gaps = [
        log1p(max(0.0, (after.at - before.at).total_seconds())) for before, after in pairwise(some)
    ]
    total = sum(gaps) or 1.0
    bars, at = [], 0.0
    for place, moment in enumerate(some):
        lane = _LANES.get(moment.kind)
        if lane is not None:
            x = round(at / total * (WIDE - 12))
            bars.append(_bar(moment, lane, x, total))
        at += gaps[place] if place < len(gaps) else 0.0
    return bars


def _bar(moment: Moment, lane: str, x: int, total: float) -> Bar:
    row = _row(moment)
    width = 8
    look: str = moment.kind
    if moment.attempt is not None:  # its time is when it ended
        width = max(8, min(x + 8, round(log1p(moment.attempt.seconds) / total * WIDE)))
        x = x + 8 - width
        look = "attempt" if moment.attempt.outcome != "cut" else "cut"
    elif moment.kind is Kind.OUTCOME:
        look = "handled" if moment.text in {Outcome.CONFIRMED, Outcome.PRESUMED} else "failed"
    title = " ".join(part for part in (row.time, row.who, row.text) if part)
    return Bar(lane=lane, look=look, x=x, width=width, title=shortened(title, 200))
