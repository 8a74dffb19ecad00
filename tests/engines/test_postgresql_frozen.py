"""PostgreSQL: databases of earlier versions open, add up and go on."""

import lzma
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from cli.conftest import Command, dlq
from engines.postgresql_time import a_database
from frozen.checks import check_office
from servers import Server

__all__ = ["dlq"]

FOLDER = Path(__file__).parents[1] / "frozen"
DUMPS = {path.name: path for path in sorted(FOLDER.glob("postgresql-*.sql.xz"))}


@pytest.fixture(params=DUMPS)
async def url(request: pytest.FixtureRequest, postgresql_server: Server) -> AsyncIterator[str]:
    dump = lzma.decompress(DUMPS[request.param].read_bytes()).decode()
    async with a_database(postgresql_server.url) as url:
        connection = await asyncpg.connect(url)
        await connection.execute(dump)
        await connection.close()
        yield url


def test_an_office_of_an_earlier_version_goes_on(url: str, dlq: Command) -> None:
    check_office(dlq, url)
