"""
Groups, and how many letters are in which state: counted as they change.

Everything here happens in the transaction of the change itself, once for a whole
batch, so that nobody ever has to count letters to show a number.
"""

import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from deadletter.core.failure import Trouble
from deadletter.core.grouping import Asked, as_of
from deadletter.core.letter import (
    OPEN,
    DeadLetter,
    Group,
    LetterHead,
    State,
)

from .group_standing import standing_of
from .letters_rows import WRITTEN
from .marks import ADD, office_marks
from .rows import micros, when
from .sql import Row, fetch, is_plain, packed, storable, stored, write

Shifts: TypeAlias = Counter[tuple[str, str, State]]
"""How many letters more or less there are, by source, fingerprint and state."""

_DIED: Final = """
INSERT INTO groups (fingerprint, source, error_type, text, frame, trouble, code,
                    first_seen, last_seen, total, open) VALUES
"""
_DIED_BEFORE: Final = """
ON CONFLICT (fingerprint) DO UPDATE SET
    error_type = iif(excluded.last_seen >= last_seen, excluded.error_type, error_type),
    text = iif(excluded.last_seen >= last_seen, excluded.text, text),
    frame = iif(excluded.last_seen >= last_seen, excluded.frame, frame),
    trouble = iif(excluded.last_seen >= last_seen, excluded.trouble, trouble),
    code = iif(excluded.last_seen >= last_seen, excluded.code, code),
    first_seen = min(first_seen, excluded.first_seen),
    last_seen = max(last_seen, excluded.last_seen),
    total = total + excluded.total,
    open = open + excluded.open
"""
_COUNT_DEATHS: Final = f"""
UPDATE office SET deaths = deaths + ?, death_marks = death_marks + ? {ADD}
"""  # noqa: S608 -- made of constants
_GROUP_STATES: Final = "INSERT INTO group_states (fingerprint, state, n) VALUES"
_SOURCE_STATES: Final = "INSERT INTO source_states (source, state, n) VALUES"
_MORE_OF_GROUP: Final = (
    "ON CONFLICT (fingerprint, state) DO UPDATE SET n = n + excluded.n"
)
_MORE_OF_SOURCE: Final = "ON CONFLICT (source, state) DO UPDATE SET n = n + excluded.n"
_SHIFT_OPEN: Final = "WITH shifted (fingerprint, n) AS (VALUES"
_SHIFTED: Final = """
) UPDATE groups SET open = open + shifted.n
FROM shifted WHERE groups.fingerprint = shifted.fingerprint
"""

_COUNTS: Final = "SELECT source, state, n FROM source_states WHERE n > 0"
_COLUMNS: Final = """
fingerprint, source, error_type, text, frame, trouble, code,
first_seen, last_seen, total, status, since, owner, note, until, version
"""
# As it stands now, see `core.grouping.as_of`.
_STANDS: Final = """
CASE WHEN until <= :now THEN 'ongoing' ELSE status END
IN (SELECT value FROM json_each(:statuses))
"""
_NAMED: Final = "fingerprint >= :named AND fingerprint < :named || char(:end)"
_ONE: Final = "SELECT * FROM groups WHERE fingerprint = ?"
_STATES_OF: Final = """
SELECT fingerprint, state, n FROM group_states WHERE n > 0 AND fingerprint = ?
"""
_STATES: Final = """
SELECT fingerprint, state, n FROM group_states
WHERE n > 0 AND fingerprint IN (VALUES
"""


def shift(shifts: Shifts, head: LetterHead, by: int) -> None:
    """Count one letter more or less where its head says."""
    shifts[head.source, head.fingerprint, head.state] += by


def count(
    connection: sqlite3.Connection, shifts: Shifts, died: Iterable[DeadLetter] = ()
) -> None:
    """
    Write down how many letters more or less there are.

    Deaths among them are counted in their groups, which are made where they are new.
    The caller counts them for the office, as `note_deaths` does.
    """
    by_group: Counter[tuple[str, State]] = Counter()
    by_source: Counter[tuple[str, State]] = Counter()
    for (source, fingerprint, state), n in shifts.items():
        by_group[fingerprint, state] += n
        by_source[source, state] += n
    write(connection, _GROUP_STATES, _rows(by_group), _MORE_OF_GROUP)
    write(connection, _SOURCE_STATES, _rows(by_source), _MORE_OF_SOURCE)
    by_open: Counter[str] = Counter()
    for (fingerprint, state), n in by_group.items():
        by_open[fingerprint] += n if state in OPEN else 0
    by_death: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for letter in died:
        by_death[letter.head.fingerprint].append(letter)
    deaths = [_died(of, by_open.pop(name, 0)) for name, of in by_death.items()]
    write(connection, _DIED, deaths, _DIED_BEFORE)
    rows = [(stored(fingerprint), n) for fingerprint, n in by_open.items() if n]
    write(connection, _SHIFT_OPEN, rows, _SHIFTED)


def note_deaths(connection: sqlite3.Connection, deaths: Mapping[str, int]) -> None:
    """
    Note how many deaths more or less groups count, which `verify` goes by.

    Filing letters counts them with the letters, in one statement. Whoever else changes
    the total of a group says so here, in the same transaction.
    """
    if deaths:
        marks = office_marks(connection).texts(deaths)
        values = (sum(deaths.values()), marks)
        connection.execute(_COUNT_DEATHS, values)


def counts(connection: sqlite3.Connection) -> dict[str, dict[State, int]]:
    """How many letters of each state, by source."""
    found: dict[str, dict[State, int]] = {}
    for source, state, n in fetch(connection, "source, state, n", _COUNTS):
        found.setdefault(source, {})[State(state)] = n
    return found


def groups(connection: sqlite3.Connection, asked: Asked) -> list[Group]:
    """Groups, latest or largest first."""
    order, behind = asked.order, _behind(asked)
    conditions = ["source = :source"] if asked.source is not None else []
    conditions += ["open > 0"] if asked.only_open else []
    if behind:
        marks = ", ".join(f":{name}" for name in order)
        conditions.append(f"({', '.join(order)}) < ({marks})")
    if asked.named:
        conditions.append(_NAMED)
    if asked.statuses is not None:
        conditions.append(_STANDS)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = fetch(
        connection,
        _COLUMNS,
        f"SELECT * FROM groups {where}"  # noqa: S608 -- all of it is ours
        f" ORDER BY {', '.join(f'{name} DESC' for name in order)} LIMIT :limit",
        {
            "source": stored(asked.source),
            "limit": asked.limit,
            "named": stored(asked.named),
            "end": sys.maxunicode,
            "statuses": packed(sorted(asked.statuses or ())),
            "now": micros(asked.now),
            **behind,
        },
    )
    states: defaultdict[str, dict[State, int]] = defaultdict(dict)
    for start in range(0, len(rows), 1000):
        prints = [stored(row[0]) for row in rows[start : start + 1000]]
        marks = ", ".join(["(?)"] * len(prints))
        for fingerprint, state, n in fetch(
            connection, "fingerprint, state, n", f"{_STATES} {marks})", prints
        ):
            states[fingerprint][State(state)] = n
    return [_group(row, states[row[0]], asked.now) for row in rows]


def group_named(
    connection: sqlite3.Connection, name: str, now: datetime
) -> Group | None:
    """The group of exactly this fingerprint, with its counts."""
    rows = fetch(connection, _COLUMNS, _ONE, (stored(name),))
    if not rows:
        return None
    states = fetch(connection, "fingerprint, state, n", _STATES_OF, (stored(name),))
    return _group(rows[0], {State(state): n for _, state, n in states}, now)


def _behind(asked: Asked) -> dict[str, int | str | bytes | None]:
    place = zip(asked.order, asked.start or (), strict=False)
    return {name: _value(one) for name, one in place}


def _value(one: int | datetime | str) -> int | str | bytes | None:
    match one:
        case datetime():
            return micros(one)
        case str():
            return stored(one)
    return one


def _rows(counted: Counter[tuple[str, State]]) -> Sequence[Row]:
    rows = [(name, WRITTEN[state], n) for (name, state), n in counted.items() if n]
    if is_plain("".join([row[0] for row in rows])):
        return rows
    return [(stored(name), state, n) for name, state, n in rows]


def _died(letters: list[DeadLetter], more_open: int) -> Row:
    latest = letters[0]
    times = [micros(latest.head.dead_at)]
    if len(letters) > 1:
        times = [micros(letter.head.dead_at) for letter in letters]
        # Of several at the same moment, the one that came last.
        latest = max(reversed(letters), key=lambda letter: letter.head.dead_at)
    head = latest.head
    return storable(
        (
            head.fingerprint,
            letters[0].head.source,
            head.error_type,
            head.error_text,
            latest.frame,
            WRITTEN[head.trouble],
            head.code,
            min(times),
            max(times),
            len(letters),
            more_open,
        )
    )


def _group(row: Row, states: dict[State, int], now: datetime) -> Group:
    return Group(
        fingerprint=row[0],
        source=row[1],
        error_type=row[2],
        text=row[3],
        frame=row[4],
        trouble=Trouble(row[5]),
        code=row[6],
        first_seen=when(row[7]),
        last_seen=when(row[8]),
        counts=states,
        total=row[9],
        standing=as_of(standing_of(row[10:]), now),
    )
