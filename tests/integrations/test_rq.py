"""RQ: real workers that file what fails, and confirm what is sent back."""

import json
from pathlib import Path
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from integrations.rig import FilingShop, attempts, survive_kills
from interop.redis_copies import emptied
from interop.rig import PATIENCE
from servers import Server

PLAIN = ("rq.cli", "worker", "shop", "--url", "SERVER")
WORKER = (*PLAIN, "--worker-class", "filing_rq.ShopWorker")


@pytest.fixture
def client(redis_server: Server) -> Any:
    return emptied(redis_server)


@pytest.fixture
def shop(client: Any, redis_server: Server, tmp_path: Path) -> FilingShop:
    return FilingShop("rq", redis_server, tmp_path, "filing_rq")


async def test_failed_jobs_are_filed_and_their_replays_confirmed(
    shop: FilingShop, client: Any
) -> None:
    shop.broken.touch()
    shop.ask("o-1", token="tok-12345")
    data = client.hget("rq:job:job-o-1", "data")

    with shop.live_worker(*WORKER):
        [letter] = await shop.until_letters(1)
        await eventually(lambda: not client.zcard("rq:failed:shop"), within=PATIENCE)
        shop.broken.unlink()
        await shop.replay("is:pending", "confirmed", 1)

    assert (letter["source"], letter["consumer"]) == ("shop", "filing_rq.charge")
    assert (letter["error_type"], letter["error_text"]) == ("ValueError", "order o-1 has no price")
    assert "tok-12345" not in json.dumps({**letter, "message": None})
    [attempt] = attempts(letter)
    assert 'till.py", line' in attempt["stack"]
    assert client.hget("rq:job:job-o-1", "data") == data
    assert shop.charged() == ["o-1"]
    assert [one["state"] for one in shop.letters()] == ["replayed"]


async def test_only_the_last_attempt_is_filed_with_the_errors_of_all(shop: FilingShop) -> None:
    shop.broken.touch()
    shop.ask("o-1", retries=2)

    with shop.live_worker(*WORKER):
        [before] = await shop.until_letters(1)
        await shop.replay("is:pending", "failed", 1)
        [letter] = await shop.until_letters(1, "is:pending")

    told = attempts(before)
    assert {one["text"] for one in told} == {"order o-1 has no price"}
    assert len(told) == 3
    assert (letter["id"], letter["replays"]) == (before["id"], 1)


async def test_jobs_whose_process_is_gone_are_filed(shop: FilingShop) -> None:
    shop.broken.touch()
    shop.ask("o-1", "die")

    with shop.live_worker(*WORKER):
        [letter] = await shop.until_letters(1)
        shop.broken.unlink()
        await shop.replay("is:pending", "confirmed", 1)

    assert "Work-horse terminated unexpectedly" in letter["error_text"]
    assert shop.charged() == ["o-1"]


async def test_jobs_that_another_worker_left_are_filed_once(shop: FilingShop, client: Any) -> None:
    shop.broken.touch()
    shop.ask("o-1")
    with shop.live_worker(*PLAIN):
        await eventually(lambda: client.zcard("rq:failed:shop"), within=PATIENCE)

    with shop.live_worker(*WORKER):
        [letter] = await shop.until_letters(1)
        await eventually(lambda: not client.zcard("rq:failed:shop"), within=PATIENCE)

    assert len(attempts(letter)) == 1


async def test_without_an_office_jobs_stay_in_the_failed_registry(
    client: Any, redis_server: Server, tmp_path: Path
) -> None:
    nowhere = "postgresql://nobody:secret-1@127.0.0.1:1/none"
    shop = FilingShop("rq", redis_server, tmp_path, "filing_rq", nowhere)
    shop.broken.touch()
    shop.ask("o-1")

    with shop.live_worker(*WORKER, TIMEOUT="2"):
        await eventually(lambda: "filing-failed" in shop.told(), within=PATIENCE)
        shop.broken.unlink()
        shop.ask("o-2")
        await shop.until_charged(1)

    assert client.zcard("rq:failed:shop") == 1
    assert "secret-1" not in shop.told()


async def test_jobs_survive_kills_while_they_are_filed(shop: FilingShop) -> None:
    await survive_kills(shop, WORKER)
    assert all(len(attempts(one)) == 1 for one in await shop.until_letters(1))
