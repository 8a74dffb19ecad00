"""
Many rows to a statement, both ways.

Every step of SQLite lets go of the interpreter and, beside a busy thread, waits
milliseconds to get it back. So a batch is written by few statements of many rows
each, and read back as ONE row holding a JSON array.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import chain, count
from secrets import randbits
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.message import Delivery, Message
from deadletter.core.packing import NOTHING_EXTRA, pack_extra, read_extra
from deadletter.core.text import shown as text_shown
from deadletter.core.text import stored as text_stored

_ODD_TEXT: Final = ("JSON cannot hold BLOB", "Could not decode to UTF-8")
_CHUNK: Final = 1_000  # names in one statement
_VARIABLES: Final = 32_000  # SQLite allows 32,766 in a statement

Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Sequence[Any] | dict[str, Any]


def fetch(
    connection: sqlite3.Connection, names: str, select: str, values: Values = ()
) -> list[Row]:
    """
    The rows of a select whose columns are called `names`.

    Blobs are to be selected as `hex(…)`. Text that had to be stored as a blob
    comes back as the text it was; one row of damaged text does not hide the others.
    """
    try:
        (packed,) = connection.execute(_packed(names, select), values).fetchone()
    except sqlite3.OperationalError as error:
        if not is_odd_text(error):
            raise
        found = fetch_odd(connection, _plain(names, select), values)
        return [[shown(value) for value in row] for row in found]
    rows: list[Row] = msgspec.json.decode(packed)
    return rows


def in_chunks(
    connection: sqlite3.Connection, names: str, select: str, wanted: Sequence[Sequence[str]]
) -> list[Row]:
    """Return the rows, as by `fetch`, of a select that ends in `IN`, followed by these texts."""
    found: list[Row] = []
    for start in range(0, len(wanted), _CHUNK):
        some = wanted[start : start + _CHUNK]
        values = [stored(text) for row in some for text in row]
        # Sizes are powers of two, so that few statements are ever prepared; the last
        # texts are repeated.
        size = 1 << (len(some) - 1).bit_length()
        values += values[-len(some[0]) :] * (size - len(some))
        found += fetch(connection, names, _chosen(select, size, len(some[0])), values)
    return found


@lru_cache(maxsize=256)
def _chosen(select: str, rows: int, columns: int) -> str:
    marks = f"({', '.join('?' * columns)})"
    return f"{select} (VALUES {', '.join([marks] * rows)})"


def is_odd_text(error: sqlite3.OperationalError) -> bool:
    """Return whether a select failed because text in a row is none."""
    return any(sign in str(error) for sign in _ODD_TEXT)


def fetch_odd(connection: sqlite3.Connection, select: str, values: Values) -> list[Row]:
    """Return the rows of a select as they are stored, whatever text is in them."""
    usual = connection.text_factory
    connection.text_factory = _text
    try:
        return connection.execute(select, values).fetchall()
    finally:
        connection.text_factory = usual


def write(
    connection: sqlite3.Connection,
    before: str,
    rows: Sequence[Row],
    after: str = "",
    *,
    first: Row = (),
) -> None:
    """
    Run `before (?, ?), (?, ?) … after` with these rows, in few statements.

    The values of `first` are for marks in `before`.
    """
    for part in _parts(rows):
        values = [*first, *chain.from_iterable(part)]
        connection.execute(_marked(before, len(part), len(part[0]), after), values)


def ids(texts: Iterable[str]) -> str:
    """Texts for `json_each(?)`: each once, without those that no id can be."""
    return msgspec.json.encode([text for text in dict.fromkeys(texts) if text.isascii()]).decode()


def numbers(values: Iterable[int]) -> str:
    """Numbers for `json_each(?)`."""
    return msgspec.json.encode(list(values)).decode()


def packed(rows: Sequence[Row]) -> str:
    """Rows for `json_each(?)`, of numbers and of texts that are ours."""
    return msgspec.json.encode(rows).decode()


def stored(text: str | None) -> str | bytes | None:
    """
    A text as it can be stored: as itself, or as a blob of its bytes.

    SQLite's functions take a NUL for the end, and lone surrogates, which ids of
    foreign brokers may hold, are no text to it.
    """
    if text is None or is_plain(text):
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    if b"\0" in encoded or not _is_utf8(encoded):
        return encoded
    return text


def is_plain(text: str) -> bool:
    """Return whether a text is stored as itself, as nearly all are."""
    return text.isascii() and "\0" not in text


def storable(row: Row) -> Row:
    """A row with all its texts as they can be stored."""
    if is_plain("".join([value for value in row if type(value) is str])):
        return row
    return [stored(value) if type(value) is str else value for value in row]


def shown(value: Any) -> Any:
    """A stored value as what it was."""
    return _text(value) if isinstance(value, bytes) else value


def _text(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # not written by us, or damaged since
        return stored.decode("utf-8", "surrogateescape")


def _is_utf8(encoded: bytes) -> bool:
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    # Sizes are powers of two, so that few statements are ever prepared.
    start = 0
    while start < len(rows):
        most = min(len(rows) - start, _VARIABLES // len(rows[0]))
        size = 1 << (most.bit_length() - 1)
        yield rows[start : start + size]
        start += size


@cache
def _marked(before: str, rows: int, columns: int, after: str) -> str:
    marks = f"({', '.join('?' * columns)})"
    return f"{before} {', '.join([marks] * rows)} {after}"


def _packed(names: str, select: str) -> str:
    # Every part of the text is written by us; values are always bound.
    return f"SELECT json_group_array(json_array({names})) FROM ({select})"  # noqa: S608 -- see above


def _plain(names: str, select: str) -> str:
    return f"SELECT {names} FROM ({select})"  # noqa: S608 -- as in _packed


# Messages as rows, and rows as deliveries.
#
# A batch is read back as ONE row holding a JSON array: every further row would be
# one more step of SQLite, each of which lets go of the interpreter and, beside a
# busy thread, waits milliseconds to get it back.

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

MessageRow: TypeAlias = tuple[str, bytes, bytes | None, int, int | None]
"""id, body, extra, sent_at, expires_at"""

_SMALL: Final = 16_384  # bytes; larger bodies are read one by one

# Bodies and stories are laid end to end, not put into the JSON: there they would
# be searched for characters to escape, which costs more than all the rest.
_CLAIMED: Final = f"""
SELECT json_group_array(json_array(
        due, seq, id, length(body), hex(extra), sent_at, expires_at, attempts, spared,
        suspect, first_at, length(CAST(history AS BLOB)), mailbox)),
    CAST(group_concat(CASE WHEN length(body) <= {_SMALL} THEN body END, '') AS BLOB),
    CAST(group_concat(history, '') AS BLOB),
    max(length(body)) > {_SMALL}
FROM messages WHERE leased = ? AND token = ?
"""  # noqa: S608 -- made of constants
_LARGE: Final = f"""
SELECT seq, body FROM messages
WHERE leased = ? AND token = ? AND length(body) > {_SMALL}
"""  # noqa: S608 -- made of constants

_Row: TypeAlias = tuple[
    int,  # due
    int,  # seq
    str,  # id
    int,  # size of the body
    str,  # extra, empty when there is none
    int,  # sent_at
    int | None,  # expires_at
    int,  # attempts
    int,  # spared
    int,  # suspect
    int | None,  # first_at
    int,  # size of the history, in bytes
    int,  # mailbox
]

_rows: Final = msgspec.json.Decoder(list[_Row]).decode


class Claimed(Struct, frozen=True):
    """Rows of one claim, as read; another thread makes deliveries of them."""

    token: int
    rows: str  # JSON
    small: bytes  # the small bodies, one after another
    large: dict[int, bytes]  # the others, by seq
    stories: bytes  # all of them, one after another

    def deliveries(self, mailboxes: Mapping[int, str]) -> list[Delivery]:
        """The deliveries, in order."""
        bodies, stories = self.small, self.stories
        start = told = 0
        # Mostly the same for a whole batch, and each costs more than a look.
        known_first, first = None, None
        known_sent, sent = None, EPOCH
        known_extra, rare, damage = "", NOTHING_EXTRA, ""
        found = []
        # One loop with nothing called that can be helped: it runs for every message.
        for (
            due, seq, id_, size, extra, sent_at, expires_at, attempts, spared,
            suspect, first_at, story, mailbox,
        ) in _rows(self.rows):  # fmt: skip
            if size <= _SMALL:
                body = bodies[start : start + size]
                start += size
            else:
                body = self.large[seq]
            if first_at != known_first:
                known_first = first_at
                first = None if first_at is None else when(first_at)
            if sent_at != known_sent:
                known_sent, sent = sent_at, when(sent_at)
            if extra != known_extra:
                known_extra = extra
                rare, damage = read_extra(bytes.fromhex(extra))
            message = Message(
                id=id_ if id_.isascii() else text_shown(id_),
                body=body,
                sent_at=sent,
                expires_at=None if expires_at is None else when(expires_at),
                headers=rare.headers,
                content_type=rare.content_type,
                key=rare.key,
                reply_to=rare.reply_to,
                idempotency_key=rare.idempotency_key,
                traceparent=rare.traceparent,
                tracestate=rare.tracestate,
                lineage=rare.lineage,
            )
            delivery = Delivery(
                message=message,
                mailbox=mailboxes[mailbox],
                attempt=attempts,
                spared=spared,
                suspect=suspect == 1,
                first_received_at=first,
                history=stories[told : told + story].decode() if story else "",
                receipt=(seq, self.token),
                unreadable=damage,
            )
            told += story
            found.append((due, seq, delivery))
        found.sort()  # seq is unique: deliveries themselves are never compared
        return [delivery for _, _, delivery in found]


def micros(at: datetime) -> int:
    """A time as it is stored, exactly."""
    return (at - EPOCH) // MICROSECOND


def when(at: int) -> datetime:
    """The time that was stored."""
    return EPOCH + timedelta(0, 0, at)


def seconds(duration: float) -> int:
    """A duration as it is stored."""
    return round(duration * 1_000_000)


def rows_of(messages: Sequence[Message]) -> list[MessageRow]:
    """Messages as they are stored."""
    known_sent, sent = None, 0
    rows: list[MessageRow] = []
    for message in messages:
        if message.sent_at is not known_sent:  # mostly one time for the whole batch
            known_sent, sent = message.sent_at, micros(message.sent_at)
        expires_at = message.expires_at
        rows.append(
            (
                text_stored(message.id),
                message.body,
                pack_extra(message),
                sent,
                None if expires_at is None else micros(expires_at),
            )
        )
    return rows


def read_claimed(connection: sqlite3.Connection, leased: int, token: int) -> Claimed:
    """Read what was claimed under this token until then."""
    claim = (leased, token)
    rows, small, stories, some_large = connection.execute(_CLAIMED, claim).fetchone()
    large = connection.execute(_LARGE, claim) if some_large else ()
    return Claimed(token, rows, small or b"", dict(large), stories or b"")


class Tokens:
    """
    Unique numbers for claims and leases that fit SQLite's integers.

    Each process counts up from a random start below 2^62. The start does not come from
    the injected dice: seeded ones would repeat it.
    """

    def __init__(self) -> None:
        self._numbers = count(randbits(40) << 22)

    def next(self) -> int:
        """Return a number that was never returned before. Safe from any thread."""
        return next(self._numbers)
