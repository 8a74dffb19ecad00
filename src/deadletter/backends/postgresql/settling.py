"""Giving deliveries up: a batch is one statement, whatever is in it."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

from deadletter.core.marks import MASK, Marks, weight
from deadletter.ports.broker import Acked, Fate, Released, Settlement

from .rows import octets

Receipt: TypeAlias = tuple[int, int]  # seq, token

_SHARDS: Final = 16


def ours(seqs: str, tokens: str) -> str:
    """
    What is still ours: it carries our token, and its lease still runs.

    Messages are found by number and looked up in the lists handed in, which no plan
    can turn into a search of anything larger. The rest is said in one piece, since
    the planner would make the wrong guesses by it. No number comes twice.
    """
    return f"""
        m.seq = ANY({seqs}::bigint[]) AND CASE
            WHEN m.mailbox = $1 AND m.leased > deadletter.clock() THEN m.token ELSE 0
        END = ({tokens}::bigint[])[array_position({seqs}::bigint[], m.seq)]
    """


_WEIGHTS: Final = " ".join(
    f"WHEN '{fate}' THEN {weight(fate)}" for fate in ("sent", *Fate)
)
COUNT: Final = f"""
INSERT INTO deadletter.tally AS t (mailbox, fate, shard, n, marks)
SELECT $1, fate, pg_backend_pid() % {_SHARDS}, count(*),
    ((coalesce(sum(mark), 0) + count(*) * CASE fate {_WEIGHTS} END)
        % {MASK + 1})::bigint
FROM gone GROUP BY fate ORDER BY fate
ON CONFLICT (mailbox, fate, shard) DO UPDATE
SET n = t.n + excluded.n, marks = (t.marks + excluded.marks) & {MASK}
"""  # noqa: S608 -- made of constants
"""Notes how many messages left, of a list `gone`, how, and the sum of their marks."""

_WEIGHED: Final = f"n::numeric * CASE fate {_WEIGHTS} END % {MASK + 1}"
BEGIN_SUMS: Final = f"""
UPDATE deadletter.tally SET marks = ({_WEIGHED})::bigint WHERE mailbox = $1
"""  # noqa: S608 -- made of constants
"""Makes sums of a mailbox that hold no message."""

KEY: Final = "(SELECT marks_key FROM deadletter.mailboxes WHERE id = $1)"
# Nothing is done where the sums are made with another key than the marks in $11, which
# is $12: the answer tells which one it is.
SETTLE: Final = f"""
WITH gone AS (
    DELETE FROM deadletter.messages m WHERE {ours("$2", "$3")} AND {KEY} = $12
    RETURNING m.seq, m.token,
        ($4::text[])[array_position($2::bigint[], m.seq)] AS fate,
        CASE WHEN m.mark IS NOT NULL
            THEN ($11::bigint[])[array_position($2::bigint[], m.seq)] END AS mark
), counted AS ({COUNT}), freed AS (
    UPDATE deadletter.messages m
    SET token = NULL, leased = NULL, alone = false,
        (due, span, history, spared, suspect) = (
            SELECT least(deadletter.clock() + ($7::interval[])[at], m.expires_at),
                ($7::interval[])[at], coalesce(($8::bytea[])[at], m.history),
                m.spared + ($9::int[])[at],
                m.suspect AND ($10::bool[])[at]
            FROM array_position($5::bigint[], m.seq) AS at)
    WHERE {ours("$5", "$6")} AND {KEY} = $12 RETURNING m.seq
), settled AS (SELECT seq FROM gone UNION ALL SELECT seq FROM freed)
SELECT array_agg(seq),
    (SELECT pg_notify('deadletter', $1::text) FROM freed LIMIT 1), {KEY}
FROM settled
"""  # noqa: S608 -- made of constants
EXTEND: Final = f"""
UPDATE deadletter.messages m SET leased = deadletter.clock() + $4, span = $4
WHERE {ours("$2", "$3")} RETURNING m.seq
"""  # noqa: S608 -- made of constants


def rounds(receipts: Iterable[Receipt]) -> list[dict[int, int]]:
    """
    Tokens by number, each receipt once.

    One message under two tokens, of which one at most is still good, takes a second
    round.
    """
    found: list[dict[int, int]] = [{}]
    for seq, token in dict.fromkeys(receipts):
        place = next((some for some in found if seq not in some), None)
        if place is None:
            place = {}
            found.append(place)
        place[seq] = token
    return found


def columns_of(
    settlements: Sequence[Settlement], marks: Marks
) -> tuple[Sequence[Any], ...]:
    """Settlements as `SETTLE` takes them."""
    acked = [s for s in settlements if isinstance(s, Acked)]
    released = [s for s in settlements if isinstance(s, Released)]
    return (
        [s.delivery.receipt[0] for s in acked],
        [s.delivery.receipt[1] for s in acked],
        [s.fate for s in acked],
        [s.delivery.receipt[0] for s in released],
        [s.delivery.receipt[1] for s in released],
        [span(s.delay) for s in released],
        [None if s.history is None else octets(s.history) for s in released],
        [0 if s.charged else 1 for s in released],
        # Its handler has run and its worker lives: it is proven. What comes back
        # unrun, and so uncharged and without a story, is not.
        [not s.charged and s.history is None for s in released],
        [marks.message(s.delivery.message.id, s.delivery.message.body) for s in acked],
    )


def span(seconds: float) -> timedelta:
    """A duration as it is stored; never a negative one."""
    return timedelta(seconds=max(0.0, seconds))
