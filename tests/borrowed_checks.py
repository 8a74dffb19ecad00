"""What must hold of messages that are sent within transactions, whatever the driver."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from borrowed_rig import MAKE, Shop
from cli.conftest import Command
from deadletter import App, ConfigError
from deadletter.ports import Reconciled, Reconciles

WORKER: Final = Path(__file__).with_name("borrowed_worker.py")

Opened: TypeAlias = Callable[[str], AbstractAsyncContextManager[Shop]]


async def in_mailbox(app: App, mailbox: str = "orders") -> list[int]:
    """Return the numbers of the messages that can be received, in order."""
    source = (await app.engine()).broker.source(mailbox)
    found: list[int] = []
    while deliveries := await source.receive(limit=500, wait=0.0, lease=60.0):
        found += [json.loads(one.message.body)["n"] for one in deliveries]
    return sorted(found)


async def check_sums(app: App, mailbox: str = "orders") -> None:
    """Fail unless what is in the mailboxes is what came and went, as `dlq verify` compares it."""
    found = {one.mailbox: one for one in await reconciled(app)}
    assert all(one.same and not one.unmarked for one in found.values()), found


async def reconciled(app: App) -> list[Reconciled]:
    broker = (await app.engine()).broker
    assert isinstance(broker, Reconciles)
    return list(await broker.reconcile())


async def check_commit_and_rollback(url: str, opened: Opened, mailbox: str) -> None:
    """A message is sent if, and only if, its transaction commits; the next one as well."""
    async with App(url) as app, opened(url) as shop:
        await _make_orders(shop)
        for n in range(6):
            await shop.order(app, n, commits=n % 2 == 1, mailbox=mailbox)
        await shop.begin()
        await shop.send(app, mailbox, {"n": 7})  # all there is in this transaction
        await shop.commit()

        assert await in_mailbox(app, mailbox) == [1, 3, 5, 7]
        await check_sums(app)


async def check_waiting_receiver(url: str, opened: Opened, mailbox: str) -> float:
    """A receiver that waits gets the message after the commit; return the seconds it took."""
    async with App(url) as app, opened(url) as shop:
        source = (await app.engine()).broker.source(mailbox)
        await app.send(mailbox, {"n": 0})
        assert len(await source.receive(limit=1, wait=30.0, lease=60.0)) == 1
        waiting = asyncio.create_task(source.receive(limit=1, wait=30.0, lease=60.0))
        await shop.begin()
        await shop.send(app, mailbox, {"n": 1})
        await asyncio.sleep(0.2)
        assert not waiting.done()
        loop = asyncio.get_running_loop()
        await shop.commit()
        committed = loop.time()
        assert len(await waiting) == 1
        return loop.time() - committed


async def check_other_database(url: str, other: str, opened: Opened) -> None:
    """A connection to another database is refused, and nothing is written there."""
    async with App(url) as app, App(other) as others, opened(other) as shop:
        await shop.begin()
        with pytest.raises(ConfigError, match="leads to"):
            await shop.send(app, "refused", {"n": 1})
        await shop.commit()
        assert "refused" not in {one.mailbox for one in await reconciled(others)}
        assert await in_mailbox(app, "refused") == []


async def check_many_transactions(url: str, opened: Opened, dlq: Command, *, count: int) -> None:
    """Of many transactions, half rolled back, messages and rows are those that committed."""
    dice = random.Random(count)
    commits = [dice.random() < 0.5 for _ in range(count)]
    async with App(url) as app, opened(url) as shop:
        await _make_orders(shop)
        for n, is_committed in enumerate(commits):
            await shop.order(app, n, commits=is_committed)

        expected = [n for n, is_committed in enumerate(commits) if is_committed]
        assert await shop.numbers() == expected
        assert await in_mailbox(app) == expected
    assert (await asyncio.to_thread(dlq, "--url", url, "verify")).code == 0


async def check_kills(url: str, drivers: Iterable[str], opened: Opened, dlq: Command) -> None:
    """After kills at any moment, there is a message for each row, and a row for each message."""
    dice = random.Random(20)
    async with App(url) as app, opened(url) as shop:
        await _make_orders(shop)
        for number, driver in enumerate(drivers):
            first = str(number * 1_000_000)
            command = [sys.executable, str(WORKER), url, driver, first]
            worker = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
            await asyncio.sleep(dice.random())
            worker.send_signal(signal.SIGKILL)
            await worker.communicate()

        numbers = await shop.numbers()
        assert len({n // 1_000_000 for n in numbers}) > number / 2  # most had time to commit
        assert await in_mailbox(app) == numbers
    assert (await asyncio.to_thread(dlq, "--url", url, "verify")).code == 0


async def _make_orders(shop: Shop) -> None:
    await shop.begin()
    await shop.run(MAKE)
    await shop.run("DELETE FROM shop_orders")
    await shop.commit()
