"""When each version of an application was first seen at a mailbox."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.escaping import stored
from deadletter.core.versions import Seen

from .letters_rows import columns
from .pool import Connection
from .text import legible

_SOME: Final = """
SELECT source, version, first_seen FROM deadletter.versions
WHERE (source, version) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_ALL: Final = "SELECT source, version, first_seen FROM deadletter.versions LIMIT $1"


def rows_of(seen: Seen) -> list[Any]:
    """Return versions that were seen, as columns."""
    rows = [(stored(source), stored(v), at) for (source, v), at in seen.items()]
    return columns(sorted(rows), 3)


async def first_seen(
    connection: Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    if not names:
        return {}
    sources, versions = zip(*names, strict=True)
    found = await connection.fetch(
        _SOME, [stored(one) for one in sources], [stored(one) for one in versions]
    )
    return _seen(found)


async def all_seen(
    connection: Connection, most: int
) -> dict[tuple[str, str], datetime]:
    """Return when each version was first seen; at most that many versions."""
    return _seen(await connection.fetch(_ALL, most))


def _seen(rows: Sequence[Sequence[Any]]) -> dict[tuple[str, str], datetime]:
    return {(source, version): at for source, version, at in map(legible, rows)}
