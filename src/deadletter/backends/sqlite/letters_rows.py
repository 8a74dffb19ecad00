"""The heads of letters as rows, and rows as heads."""

from typing import Final

from deadletter.core.decision import Reason
from deadletter.core.failure import Trouble
from deadletter.core.keeping import Known
from deadletter.core.letter import LetterHead, State
from deadletter.core.query.pattern import fold

from .rows import micros, when
from .sql import Row, is_plain, storable

HEAD: Final = """
seq, id, source, message_id, state, partition, key, business_key, reason, reason_text,
trouble, code, error_type, error_text, fingerprint, attempts, first_failed_at, dead_at,
consumer, version, trace_id, replays, conflict, size, revision
"""
"""The columns `head_of` reads, in its order."""

ROW: Final = f"{HEAD}, error_name, generation, spent"
"""The columns `row_of` writes, in its order."""

HEADS: Final = HEAD.count(",") + 1
"""How many they are."""

WRITTEN: Final = {
    member: member.value for kind in (State, Reason, Trouble) for member in kind
}
"""Members as they are stored; asking each for its value takes ten times as long."""

_STATES: Final = {state.value: state for state in State}
_REASONS: Final = {reason.value: reason for reason in Reason}
_TROUBLES: Final = {trouble.value: trouble for trouble in Trouble}


def row_of(seq: int, known: Known) -> Row:
    """What is stored of a letter but for its contents."""
    head = known.head
    name = fold(head.error_name)
    row = (
        seq,
        head.id,
        head.source,
        head.message_id,
        WRITTEN[head.state],
        head.partition,
        head.key,
        head.business_key,
        WRITTEN[head.reason],
        head.reason_text,
        WRITTEN[head.trouble],
        head.code,
        head.error_type,
        head.error_text,
        head.fingerprint,
        head.attempts,
        micros(head.first_failed_at),
        micros(head.dead_at),
        head.consumer,
        head.version,
        head.trace_id,
        head.replays,
        head.conflict,
        head.size,
        head.revision,
        name,
        known.generation,
        known.spent,
    )
    # All texts of the row, joined faster than by looking for them.
    texts = (
        f"{head.id}{head.source}{head.message_id}{head.partition}{head.key}"
        f"{head.business_key}{head.reason_text}{head.code}{head.error_type}"
        f"{head.error_text}{head.fingerprint}{head.consumer}{head.version}"
        f"{head.trace_id}{name}"
    )
    return row if is_plain(texts) else storable(row)


def head_of(row: Row) -> LetterHead:
    """The head in the first columns of a row."""
    return LetterHead(
        id=row[1],
        source=row[2],
        message_id=row[3],
        state=_STATES[row[4]],
        partition=row[5],
        key=row[6],
        business_key=row[7],
        reason=_REASONS[row[8]],
        reason_text=row[9],
        trouble=_TROUBLES[row[10]],
        code=row[11],
        error_type=row[12],
        error_text=row[13],
        fingerprint=row[14],
        attempts=row[15],
        first_failed_at=when(row[16]),
        dead_at=when(row[17]),
        consumer=row[18],
        version=row[19],
        trace_id=row[20],
        replays=row[21],
        conflict=bool(row[22]),
        size=row[23],
        revision=row[24],
    )
