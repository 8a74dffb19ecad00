"""
The transaction table.

Every change says from which statuses it may start, so that whoever comes late, or
twice, changes nothing.
"""

from datetime import datetime
from typing import Final

import msgspec

from deadletter import ErrorCategory, Failure
from deadletter.ports import Clock

from .database import Database, Row
from .values import UNFINISHED, RelayMessage, Status, Transaction, read_id

_FIELDS: Final = (
    "id, type, status, retry_on_failure, relayer_id, hash, error_category, "
    "error_code, error_message, created_at, updated_at"
)
_UNFINISHED: Final = "status IN (" + ", ".join(f"'{one}'" for one in sorted(UNFINISHED)) + ")"
_GIVEN_UP: Final = "(status = 'failed' AND error_category IS NOT NULL)"  # by us
_WITH_RELAYER: Final = "status IN ('submitted', 'mined')"


class Table:
    """Transactions by id."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._run = database.run
        self._clock = clock

    async def get(self, id: str) -> Transaction | None:
        """A transaction as it stands."""
        rows = await self._run(f"SELECT {_FIELDS} FROM transactions WHERE id = ?1", id)
        return _transaction(rows[0]) if rows else None

    async def add(self, message: RelayMessage) -> Transaction:
        """Write down what is to be relayed; what is there already, as it stands."""
        await self._run(
            "INSERT INTO transactions (id, type, request, status, retry_on_failure, "
            "created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) "
            "ON CONFLICT (id) DO NOTHING",
            message.transaction_id,
            message.type,
            msgspec.json.encode(message.request).decode(),
            Status.PENDING.value,
            bool(message.retry_on_failure),
            self._now(),
        )
        transaction = await self.get(message.transaction_id)
        assert transaction is not None  # nobody deletes any
        return transaction

    async def reject(self, message_id: str, body: bytes, failure: Failure) -> str:
        """
        Record a malformed message as failed; return the id of its row.

        That is the transaction it names. If it names none, it is the message id. The row has
        the body, so that nothing is lost when the message is deleted.
        """
        id_ = read_id(body) or message_id
        await self._run(
            "INSERT INTO transactions (id, type, request, status, retry_on_failure, "
            "created_at, updated_at) VALUES (?1, 'malformed', ?2, ?3, FALSE, ?4, ?4) "
            "ON CONFLICT (id) DO NOTHING",
            id_,
            body.decode("utf-8", "backslashreplace").replace("\0", "\\x00"),
            Status.PENDING.value,
            self._now(),
        )
        await self.fail(id_, failure)
        return id_

    async def queued(self, id: str, *, was: Status = Status.PENDING) -> None:
        """It is on the queue, unless somebody has taken it from there already."""
        await self._run(
            "UPDATE transactions SET status = 'queued', updated_at = ?2 "
            "WHERE id = ?1 AND status = ?3",
            id,
            self._now(),
            was.value,
        )

    async def begin(self, message: RelayMessage, generation: int) -> bool:
        """
        Take it up; False when there is nothing left to do.

        What failed is taken up again only by a copy that was sent back since.
        """
        rows = await self._run(
            "UPDATE transactions SET status = 'processing', retry_on_failure = ?2, "
            "generation = ?3, updated_at = ?4 WHERE id = ?1 "
            f"AND ({_UNFINISHED} OR (status = 'failed' AND generation < ?3)) "
            "RETURNING id",
            message.transaction_id,
            bool(message.retry_on_failure),
            generation,
            self._now(),
        )
        return bool(rows)

    async def submitted(self, id: str, relayer_id: str) -> None:
        """
        The relayer below has it, and calls it so.

        That is true even if somebody has given up on it meanwhile, because a message
        of it came twice. Only what the chain said, which may be faster, stays.
        """
        await self._run(
            "UPDATE transactions SET relayer_id = ?2, updated_at = ?3 WHERE id = ?1",
            id,
            relayer_id,
            self._now(),
        )
        await self._run(
            "UPDATE transactions SET status = 'submitted', error_category = NULL, "
            "error_code = NULL, error_message = NULL "
            f"WHERE id = ?1 AND ({_UNFINISHED} OR {_GIVEN_UP})",
            id,
        )

    async def fail(self, id: str, failure: Failure) -> bool:
        """It has failed for good; False when it was over before."""
        rows = await self._run(
            "UPDATE transactions SET status = 'failed', error_category = ?2, "
            "error_code = ?3, error_message = ?4, updated_at = ?5 "
            f"WHERE id = ?1 AND {_UNFINISHED} RETURNING id",
            id,
            failure.category.value,
            failure.code,
            failure.text,
            self._now(),
        )
        return bool(rows)

    async def heard(self, id: str, status: Status, *, hash: str | None, error: str | None) -> bool:
        """What the chain made of it; False when it was not there to be changed."""
        rows = await self._run(
            "UPDATE transactions SET status = ?2, hash = COALESCE(?3, hash), "
            "error_message = COALESCE(?4, error_message), updated_at = ?5 "
            f"WHERE id = ?1 AND ({_WITH_RELAYER} OR {_UNFINISHED}) RETURNING id",
            id,
            status.value,
            hash,
            error,
            self._now(),
        )
        return bool(rows)

    def _now(self) -> str:
        return self._clock.now().isoformat()


def _transaction(row: Row) -> Transaction:
    id_, type_, status, wish, relayer_id, hash_, category, code, text = row[:9]
    return Transaction(
        transaction_id=id_,
        type=type_,
        status=Status(status),
        retry_on_failure=bool(wish),
        relayer_id=relayer_id,
        hash=hash_,
        error_category=ErrorCategory(category) if category else None,
        error_code=code,
        error_message=text,
        created_at=datetime.fromisoformat(row[9]),
        updated_at=datetime.fromisoformat(row[10]),
    )
