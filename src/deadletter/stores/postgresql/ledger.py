"""The idempotency ledger in the database."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

from deadletter.office.transactions.ledger import Ended, Entry, LedgerOperations, Name, StoredLedger
from deadletter.ports.engine import LedgerState

from .database import Database
from .queue import span
from .rows import octets

T = TypeVar("T")

# Digests are 16 bytes each; what is NULL is not known.
_FIND: Final = """
SELECT id, generation, state, holder, token, digests, due <= deadletter.clock()
FROM deadletter.ledger WHERE id = ANY($1)
"""
# Entries that others make at this moment are neither inserted nor found.
_CLAIM: Final = f"""
WITH new AS (
    INSERT INTO deadletter.ledger (id, generation, state, holder, token, due, digests)
    SELECT id, generation, 'processing', holder, token, deadletter.clock() + $6, digests
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[])
        AS g (id, generation, holder, token, digests)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, generation, state, holder, token, digests, false
)
SELECT * FROM new UNION ALL {_FIND}
"""  # noqa: S608 -- made of constants
_WRITE: Final = """
UPDATE deadletter.ledger t SET generation = g.generation, state = 'processing',
    holder = g.holder, token = g.token, due = deadletter.clock() + $6, expires_at = NULL,
    digests = g.digests
FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[],
    $7::bigint[], $8::text[])
    AS g (id, generation, holder, token, digests, found, state)
WHERE t.id = g.id AND t.token = g.found AND t.state = g.state
RETURNING t.id
"""
_FINISH: Final = """
UPDATE deadletter.ledger t SET state = g.state, expires_at = deadletter.clock() + $4
FROM unnest($1::bytea[], $2::bigint[], $3::text[]) AS g (id, token, state)
WHERE t.id = g.id AND t.token = g.token AND t.state IN ('processing', g.state)
RETURNING t.id, t.token, t.state
"""
_FORGET: Final = """
WITH gone AS MATERIALIZED (
    SELECT id FROM deadletter.ledger WHERE expires_at <= deadletter.clock()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM deadletter.ledger WHERE id = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1
"""
# Claims have no index of their own, because every message would pay for it.
_FORGET_LEFT: Final = """
WITH gone AS MATERIALIZED (
    SELECT id FROM deadletter.ledger
    WHERE state = 'processing' AND due <= deadletter.clock() - $2::interval
    LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM deadletter.ledger WHERE id = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1
"""
_IN_USE: Final = """
SELECT EXISTS (SELECT 1 FROM deadletter.ledger WHERE state = 'processed')
"""


class PostgresqlLedger(StoredLedger):
    """Idempotency keys in the database."""

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db

    async def transact(self, work: Callable[[LedgerOperations], Coroutine[Any, Any, T]]) -> T:
        """Run operations; each is a transaction, and none overwrites what others changed."""
        return await work(_Operations(self._db))

    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""
        by_id = {_digest(name): name for name in names}
        return _entries(await self._db.fetch(_FIND, [*by_id]), by_id)

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether anything was processed; entries do not name their mailbox."""
        ((found,),) = await self._db.fetch(_IN_USE)
        return bool(found)

    async def delete_expired(self, limit: int) -> int:
        """Delete finished keys whose time to live is over; return their number."""
        return len(await self._db.fetch(_FORGET, limit))

    async def delete_abandoned(self, age: float, limit: int) -> int:
        """Delete claims whose lease ran out `age` seconds ago; return their number."""
        return len(await self._db.fetch(_FORGET_LEFT, limit, span(age)))


class _Operations:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def claim_new(self, claims: Mapping[Name, Entry], lease: float) -> dict[Name, Entry]:
        """Write claims of keys without an entry; return these, and the entries of the others."""
        by_id = {_digest(name): name for name in claims}
        columns = _columns({id_: claims[name] for id_, name in by_id.items()})
        return _entries(await self._db.fetch(_CLAIM, *columns, span(lease)), by_id)

    async def write(
        self, claims: Mapping[Name, Entry], found: Mapping[Name, Entry], lease: float
    ) -> Collection[Name]:
        """Write claims unless somebody has changed the entry; return the keys written."""
        by_id = {_digest(name): name for name in claims if name in found}
        if not by_id:
            return ()  # others made the entries at this moment: look again
        columns = _columns({id_: claims[name] for id_, name in by_id.items()})
        before = [found[by_id[id_]] for id_ in columns[0]]
        tokens, states = [one.token for one in before], [one.state.value for one in before]
        rows = await self._db.fetch(_WRITE, *columns, span(lease), tokens, states)
        return [by_id[id_] for (id_,) in rows]

    async def finish(self, ended: Sequence[Ended], ttl: float) -> Collection[Ended]:
        """Write outcomes of claims that still have their token; return those that had."""
        told = {
            (_digest(name), token, state.value): (name, token, state)
            for name, token, state in ended
        }
        rows = await self._db.fetch(_FINISH, *zip(*sorted(told), strict=True), span(ttl))
        return {told[id_, token, state] for id_, token, state in rows}


def _columns(entries: Mapping[bytes, Entry]) -> tuple[Sequence[Any], ...]:
    # In one order, so that those who ask for the same do not wait in a circle.
    ids = sorted(entries)
    return (
        ids,
        [entries[id_].generation for id_ in ids],
        [octets(entries[id_].holder) for id_ in ids],
        [entries[id_].token for id_ in ids],
        [entries[id_].digests for id_ in ids],
    )


def _entries(rows: Sequence[Any], names: Mapping[bytes, Name]) -> dict[Name, Entry]:
    return {
        names[id_]: Entry(
            generation,
            LedgerState(state),
            holder.decode("utf-8", "surrogatepass"),
            token,
            digests,
            is_lapsed,
        )
        for id_, generation, state, holder, token, digests, is_lapsed in rows
    }


def _digest(name: Name) -> bytes:
    mailbox = octets(name[0])
    told = b"%d:%b%b" % (len(mailbox), mailbox, octets(name[1]))
    return blake2b(told, digest_size=16).digest()
