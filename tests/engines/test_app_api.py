"""Sending and limits of attempts, on every engine."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api_rig import check_attempt_limits
from deadletter import App
from engines.forgery_rig import ENGINES, forger_on, unused
from servers import Server


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> str:
    return forger_on(request.param, request).url


async def test_a_message_brings_its_own_limit_of_attempts(url: str, tmp_path: Path) -> None:
    await check_attempt_limits(url, f"sqlite:///{tmp_path}/office.db", unused("limits"))


async def test_limits_of_attempts_on_postgresql(postgresql_server: Server) -> None:
    await check_attempt_limits(postgresql_server.url, None, unused("limits"))


async def test_messages_are_sent_at_a_time_on_postgresql(postgresql_server: Server) -> None:
    mailbox = unused("later")
    async with App(postgresql_server.url) as app:
        await app.send(mailbox, b"now", at=datetime.now(UTC) - timedelta(days=1))
        await app.send(mailbox, b"later", at=datetime.now(UTC) + timedelta(hours=1))
        await app.send_many(mailbox, [b"a", (b"b", {"key": "k"})], delay=timedelta(hours=1))
        source = (await app.engine()).broker.source(mailbox)
        received = await source.receive(limit=10, wait=1.0, lease=10.0)

    assert [one.message.body for one in received] == [b"now"]
