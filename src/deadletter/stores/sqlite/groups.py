"""
Groups, and how many letters are in which state: counted as they change.

Everything here happens in the transaction of the change itself, once for a whole
batch, so that nobody ever has to count letters to show a number.
"""

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.failure import Trouble
from deadletter.core.grouping import SEARCHED, Asked, GroupRule, StatusCount, as_of
from deadletter.core.letter import OPEN, Group, GroupStatus, Standing, State
from deadletter.office.transactions.operations import Shifts

from .audit import ADD, office_marks
from .letters_rows import WRITTEN
from .sql import Row, fetch, in_chunks, is_plain, micros, packed, storable, stored, when, write

_RULES: Final = "SELECT fingerprint, rules FROM group_rules"
_read: Final = msgspec.json.Decoder(tuple[GroupRule, ...])


def rules(connection: sqlite3.Connection) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = fetch(connection, "fingerprint, rules", _RULES)
    return {name: _read.decode(said) for name, said in found}


# When each version of an application was first seen at a mailbox.

_COLUMNS: Final = "source, version, first_seen"
_SOME: Final = "SELECT * FROM versions WHERE (source, version) IN"
_ALL: Final = "SELECT * FROM versions LIMIT ?"


def first_seen(
    connection: sqlite3.Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    return _seen(in_chunks(connection, _COLUMNS, _SOME, names))


def all_seen(connection: sqlite3.Connection, most: int) -> dict[tuple[str, str], datetime]:
    """Return when each version was first seen; at most that many versions."""
    return _seen(fetch(connection, _COLUMNS, _ALL, (most,)))


def _seen(rows: Sequence[Row]) -> dict[tuple[str, str], datetime]:
    return {(source, version): when(at) for source, version, at in rows}


# How groups stand: said by people, or shown by a death to be otherwise.

_GROUP_STANDING_COLUMNS: Final = "fingerprint, status, since, owner, note, until, version"
_ANY: Final = "SELECT * FROM groups WHERE fingerprint IN"
_SET: Final = """
UPDATE groups SET status = ?, since = ?, owner = ?, note = ?, until = ?, version = ?
WHERE fingerprint = ?
"""
_BLANK: Final = """
UPDATE groups SET text = '', frame = '', code = ''
WHERE fingerprint = ? AND (text <> '' OR frame <> '' OR code <> '')
AND NOT EXISTS (
    SELECT 1 FROM group_states s WHERE s.fingerprint = groups.fingerprint AND s.n > 0)
"""


def standings(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, Standing]:
    """Return the standings of groups that exist."""
    wanted = [(name,) for name in names]
    rows = in_chunks(connection, _GROUP_STANDING_COLUMNS, _ANY, wanted)
    return {row[0]: standing_of(row[1:]) for row in rows}


def blank(connection: sqlite3.Connection, names: Sequence[str]) -> list[str]:
    """Delete what groups without letters say of them; which ones these were."""
    return [name for name in names if connection.execute(_BLANK, (stored(name),)).rowcount]


def standing_of(row: Row) -> Standing:
    """The standing in the columns status, since, owner, note, until, version."""
    status, since, owner, note, until, version = row
    return Standing(
        status=GroupStatus(status),
        since=None if since is None else when(since),
        owner=owner,
        note=note,
        until=None if until is None else when(until),
        version=version,
    )


def put_standing(connection: sqlite3.Connection, fingerprint: str, standing: Standing) -> None:
    """Write down how a group stands, without a word in the audit."""
    since, until = standing.since, standing.until
    connection.execute(
        _SET,
        (
            standing.status.value,
            None if since is None else micros(since),
            stored(standing.owner),
            stored(standing.note),
            None if until is None else micros(until),
            stored(standing.version),
            stored(fingerprint),
        ),
    )


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
_MORE_OF_GROUP: Final = "ON CONFLICT (fingerprint, state) DO UPDATE SET n = n + excluded.n"
_MORE_OF_SOURCE: Final = "ON CONFLICT (source, state) DO UPDATE SET n = n + excluded.n"
_SHIFT_OPEN: Final = "WITH shifted (fingerprint, n) AS (VALUES"
_SHIFTED: Final = """
) UPDATE groups SET open = open + shifted.n
FROM shifted WHERE groups.fingerprint = shifted.fingerprint
"""

_GROUPS_COUNTS: Final = "SELECT source, state, n FROM source_states WHERE n > 0"
_GROUPS_COLUMNS: Final = """
fingerprint, source, error_type, text, frame, trouble, code,
first_seen, last_seen, total, status, since, owner, note, until, version
"""
# As it stands now, see `core.grouping.as_of`.
_STANDS: Final = """
CASE WHEN until <= :now THEN 'ongoing' ELSE status END
IN (SELECT value FROM json_each(:statuses))
"""
_BY_STATUS: Final = """
SELECT CASE WHEN until <= ? THEN 'ongoing' ELSE status END AS standing,
       count(*), sum(open > 0)
FROM groups
"""
_NAMED: Final = "fingerprint >= :named AND fingerprint < :named || char(:end)"
_MENTIONS: Final = " OR ".join([f"instr(lower({name}), :text) > 0" for name in SEARCHED])
_GROUPS_ONE: Final = "SELECT * FROM groups WHERE fingerprint = ?"
_STATES_OF: Final = """
SELECT fingerprint, state, n FROM group_states WHERE n > 0 AND fingerprint = ?
"""
_STATES: Final = """
SELECT fingerprint, state, n FROM group_states WHERE n > 0 AND fingerprint IN
"""


def count(connection: sqlite3.Connection, shifts: Shifts, died: Sequence[Group] = ()) -> None:
    """
    Write down how many letters more or less there are.

    Groups with deaths among them are made where they are new. The caller counts the
    deaths for the office, as `note_deaths` does.
    """
    by_group: dict[tuple[str, State], int] = {}
    by_source: dict[tuple[str, State], int] = {}
    by_open: dict[str, int] = {}
    for (source, fingerprint, state), n in shifts.items():
        of_group, of_source = (fingerprint, state), (source, state)
        by_group[of_group] = by_group.get(of_group, 0) + n
        by_source[of_source] = by_source.get(of_source, 0) + n
        if state in OPEN:
            by_open[fingerprint] = by_open.get(fingerprint, 0) + n
    write(connection, _GROUP_STATES, _rows(by_group), _MORE_OF_GROUP)
    write(connection, _SOURCE_STATES, _rows(by_source), _MORE_OF_SOURCE)
    write(connection, _DIED, _deaths(died, by_open), _DIED_BEFORE)
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


_PUT: Final = """
INSERT INTO groups (fingerprint, source, error_type, text, frame, trouble, code,
                    first_seen, last_seen, total)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET
    (error_type, text, frame, trouble, code, first_seen, last_seen, total)
    = (excluded.error_type, excluded.text, excluded.frame, excluded.trouble,
       excluded.code, excluded.first_seen, excluded.last_seen, excluded.total)
"""


def put(connection: sqlite3.Connection, name: str, group: Group) -> None:
    """Write a group, new or again, without its counts by state."""
    connection.execute(
        _PUT,
        (
            stored(name),
            stored(group.source),
            stored(group.error_type),
            stored(group.text),
            stored(group.frame),
            group.trouble.value,
            stored(group.code),
            micros(group.first_seen),
            micros(group.last_seen),
            group.total,
        ),
    )
    put_standing(connection, name, group.standing)


def counts(connection: sqlite3.Connection) -> dict[str, dict[State, int]]:
    """Return the number of letters in each state, by source."""
    found: dict[str, dict[State, int]] = {}
    for source, state, n in fetch(connection, "source, state, n", _GROUPS_COUNTS):
        found.setdefault(source, {})[State(state)] = n
    return found


def groups(connection: sqlite3.Connection, asked: Asked) -> list[Group]:
    """Groups, latest or largest first."""
    order, behind = asked.order, _behind(asked)
    # The largest are found by reading all in order of the table: by way of an index on something
    # else, each row costs a jump. A plus keeps the planner from that.
    plain = "+" if asked.largest_first else ""
    conditions = [f"{plain}source = :source"] if asked.source is not None else []
    conditions += [f"{plain}open > 0"] if asked.only_open else []
    if behind:
        marks = ", ".join(f":{name}" for name in order)
        conditions.append(f"({', '.join(order)}) < ({marks})")
    if asked.named:
        conditions.append(_NAMED)
    if asked.pattern:
        conditions.append(f"({_MENTIONS})")
    if asked.statuses is not None:
        conditions.append(_STANDS)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = fetch(
        connection,
        _GROUPS_COLUMNS,
        f"SELECT * FROM groups {where}"  # noqa: S608 -- all of it is ours
        f" ORDER BY {', '.join(f'{name} DESC' for name in order)} LIMIT :limit",
        {
            "source": stored(asked.source),
            "limit": asked.limit,
            "named": stored(asked.named),
            "end": sys.maxunicode,
            "text": stored(asked.pattern),
            "statuses": packed(sorted(asked.statuses or ())),
            "now": micros(asked.now),
            **behind,
        },
    )
    states: defaultdict[str, dict[State, int]] = defaultdict(dict)
    names = [(row[0],) for row in rows]
    for name, state, n in in_chunks(connection, "fingerprint, state, n", _STATES, names):
        states[name][State(state)] = n
    return [_group(row, states[row[0]], asked.now) for row in rows]


def count_groups(
    connection: sqlite3.Connection, sources: Sequence[str], now: datetime
) -> dict[GroupStatus, StatusCount]:
    """Return the number of groups by their current status."""
    marks = ", ".join("?" * len(sources))
    where = f"WHERE source IN ({marks})" if sources else ""
    values = (micros(now), *map(stored, sources))
    rows = connection.execute(f"{_BY_STATUS} {where} GROUP BY standing", values)
    return {GroupStatus(status): StatusCount(n, opened) for status, n, opened in rows}


def group_named(connection: sqlite3.Connection, name: str, now: datetime) -> Group | None:
    """The group of exactly this fingerprint, with its counts."""
    rows = fetch(connection, _GROUPS_COLUMNS, _GROUPS_ONE, (stored(name),))
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


def _rows(counted: Mapping[tuple[str, State], int]) -> Sequence[Row]:
    rows = [(name, WRITTEN[state], n) for (name, state), n in counted.items() if n]
    if is_plain("".join([row[0] for row in rows])):
        return rows
    return [(stored(name), state, n) for name, state, n in rows]


def _deaths(died: Sequence[Group], by_open: dict[str, int]) -> Sequence[Row]:
    """Groups as these deaths show them; `by_open` is left without those."""
    texts: list[str] = []
    rows: list[Row] = []
    for group in died:
        name = group.fingerprint
        shown = (name, group.source, group.error_type, group.text, group.frame)
        texts += (*shown, group.code)
        first = last = micros(group.last_seen)
        if group.total > 1:
            first = micros(group.first_seen)
        kind = (WRITTEN[group.trouble], group.code)
        rows.append((*shown, *kind, first, last, group.total, by_open.pop(name, 0)))
    return rows if is_plain("".join(texts)) else [storable(row) for row in rows]


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
