"""Celery: real workers that file what fails, and confirm what is sent back."""

import json
from pathlib import Path
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from engines.postgresql_time import a_database
from intake.redis_rig import without_lineage
from integrations.rig import FilingShop, Folder, attempts, survive_kills
from interop.redis_copies import emptied
from interop.rig import PATIENCE
from servers import Server

WORKER = ("celery", "-A", "filing_celery", "worker", "--without-gossip", "--without-mingle")
POOLS = {
    "solo": (*WORKER, "--pool", "solo"),
    "threads": (*WORKER, "--pool", "threads", "--concurrency", "2"),
    "prefork": (*WORKER, "--pool", "prefork", "--concurrency", "2"),
}
SOLO, PREFORK = POOLS["solo"], POOLS["prefork"]


@pytest.fixture
def client(redis_server: Server) -> Any:
    return emptied(redis_server)


@pytest.fixture
def shop(client: Any, redis_server: Server, tmp_path: Path) -> FilingShop:
    return FilingShop("celery", redis_server, tmp_path, "filing_celery")


async def test_failed_tasks_are_filed_without_a_server(tmp_path: Path) -> None:
    shop = FilingShop("celery", Folder(), tmp_path, "filing_celery")
    shop.broken.touch()
    shop.ask("o-1", "shop.deliver")

    with shop.live_worker(*SOLO):
        [letter] = await shop.until_letters(1)

    assert (letter["source"], letter["consumer"]) == ("shop", "shop.deliver")
    assert [one["text"] for one in attempts(letter)] == ["order o-1 has no price"] * 3


@pytest.mark.parametrize("pool", POOLS)
async def test_failed_tasks_are_filed_and_their_replays_confirmed(
    shop: FilingShop, pool: str
) -> None:
    shop.broken.touch()
    shop.ask("o-1", kwargs={"token": "tok-12345"})

    with shop.live_worker(*POOLS[pool]):
        [letter] = await shop.until_letters(1)
    shop.broken.unlink()
    with shop.live_worker(*POOLS[pool]):
        await shop.replay("is:pending", "confirmed", 1)

    assert (letter["source"], letter["message_id"]) == ("shop", "task-o-1")
    assert (letter["error_type"], letter["error_text"]) == ("ValueError", "order o-1 has no price")
    assert letter["reason_text"] == "failed for good in a worker of Celery"
    assert letter["origin"]["fields"]["args"] == '["o-1"]'
    assert "tok-12345" not in json.dumps({**letter, "message": None})
    [attempt] = attempts(letter)
    assert 'till.py", line' in attempt["stack"]
    assert shop.charged() == ["o-1"]
    assert [one["state"] for one in shop.letters()] == ["replayed"]


async def test_a_replayed_task_is_the_same_byte_for_byte(shop: FilingShop, client: Any) -> None:
    shop.broken.touch()
    shop.ask("o-1", kwargs={"note": "Grüße\0"}, priority=6, headers={"tenant": "eu"})
    key = "shop\x06\x166"
    [sent] = client.lrange(key, 0, -1)

    with shop.live_worker(*SOLO):
        await shop.until_letters(1)
    shop.dlq("replay", "is:pending", "--yes", "--presume", "never")

    [copy] = client.lrange(key, 0, -1)
    assert without_lineage(copy) == sent


async def test_only_the_last_attempt_is_filed_with_the_errors_of_all(shop: FilingShop) -> None:
    shop.broken.touch()
    shop.ask("o-1", "shop.deliver")

    with shop.live_worker(*PREFORK):
        [letter] = await shop.until_letters(1)

    told = attempts(letter)
    assert [one["number"] for one in told] == [1, 2, 3]
    assert {one["text"] for one in told} == {"order o-1 has no price"}
    assert all("till" in one["stack"] for one in told)
    assert (letter["attempts"], letter["reason"]) == (3, "attempts-exhausted")
    assert not [name for name in letter["message"]["headers"] if name.startswith("dlq-story")]
    assert shop.tried()["o-1"] == 3


async def test_forged_stories_are_not_believed(shop: FilingShop) -> None:
    line = '{"number":1,"at":"2026-01-01T00:00:00Z","text":"forged"}'
    shop.broken.touch()
    shop.ask("o-1", headers={"dlq-story": "0" * 8 + ":" + "a" * 43 + " " + line})

    with shop.live_worker(*SOLO):
        [letter] = await shop.until_letters(1)

    assert [one["text"] for one in attempts(letter)] == ["order o-1 has no price"]


async def test_replays_that_fail_again_return_to_their_letter(shop: FilingShop) -> None:
    shop.broken.touch()
    shop.ask("o-1", "shop.deliver")

    with shop.live_worker(*PREFORK):
        [before] = await shop.until_letters(1)
        await shop.replay("is:pending", "failed", 1)
        [letter] = await shop.until_letters(1, "is:pending")

    assert letter["id"] == before["id"]
    assert (letter["attempts"], letter["replays"]) == (6, 1)
    generations = [one.get("generation", 0) for one in attempts(letter)]
    assert (generations[0], generations[-1]) == (0, 1)
    assert shop.tried()["o-1"] == 6


@pytest.mark.parametrize(
    ("task", "error"), [("shop.die", "WorkerLostError"), ("shop.sleep", "TimeLimitExceeded")]
)
async def test_tasks_whose_process_is_gone_are_filed_by_the_main_process(
    shop: FilingShop, task: str, error: str
) -> None:
    shop.broken.touch()
    shop.ask("o-1", task)

    with shop.live_worker(*PREFORK):
        [letter] = await shop.until_letters(1)
        shop.broken.unlink()
        await shop.replay("is:pending", "confirmed", 1)

    assert letter["error_type"] == error
    assert shop.charged() == ["o-1"]


async def test_tasks_that_nobody_knows_are_filed(shop: FilingShop) -> None:
    shop.ask("o-1", "shop.unknown")

    with shop.live_worker(*SOLO):
        [letter] = await shop.until_letters(1)

    assert letter["consumer"] == "shop.unknown"
    assert letter["reason_text"] == "rejected by a worker of Celery"


async def test_workers_go_on_without_an_office(
    client: Any, redis_server: Server, tmp_path: Path
) -> None:
    nowhere = "postgresql://nobody:secret-1@127.0.0.1:1/none"
    shop = FilingShop("celery", redis_server, tmp_path, "filing_celery", nowhere)
    shop.broken.touch()
    shop.ask("o-1")

    with shop.live_worker(*SOLO, TIMEOUT="2"):
        await eventually(lambda: "filing-failed" in shop.told(), within=PATIENCE)
        shop.broken.unlink()
        shop.ask("o-2")
        await shop.until_charged(1)
        await eventually(lambda: not client.hlen("unacked"), within=PATIENCE)

    assert shop.charged() == ["o-2"]
    assert "waits=True" in shop.told()
    assert "waits=False" in shop.told()  # the process ended
    assert "secret-1" not in shop.told()


async def test_a_letter_is_closed_when_its_task_is_delivered_again_and_handled(
    shop: FilingShop,
) -> None:
    shop.broken.touch()
    shop.ask("o-1")

    with shop.live_worker(*SOLO, DIE_AT="kept") as worker:
        worker.wait(PATIENCE)
        [letter] = await shop.until_letters(1)
        shop.broken.unlink()
    with shop.live_worker(*SOLO):
        await shop.until_letters(1, "is:closed")

    assert letter["state"] == "pending"
    assert shop.charged() == ["o-1"]


async def test_tasks_survive_kills_while_they_are_filed(shop: FilingShop) -> None:
    await survive_kills(shop, PREFORK)


async def test_tasks_are_filed_in_postgresql(
    client: Any, redis_server: Server, postgresql_server: Server, tmp_path: Path
) -> None:
    async with a_database(postgresql_server.url) as office:
        shop = FilingShop("celery", redis_server, tmp_path, "filing_celery", office)
        shop.broken.touch()
        shop.ask("o-1")
        with shop.live_worker(*PREFORK):
            [letter] = await shop.until_letters(1)
            shop.broken.unlink()
            await shop.replay("is:pending", "confirmed", 1)

    assert letter["error_text"] == "order o-1 has no price"
    assert shop.charged() == ["o-1"]


async def test_tasks_on_rabbitmq_are_filed_and_sent_back(
    rabbitmq_server: Server, tmp_path: Path
) -> None:
    shop = FilingShop("celery", rabbitmq_server, tmp_path, "filing_celery")
    shop.broken.touch()
    shop.ask("o-1", "shop.deliver", headers={"tenant": "eu"})

    with shop.live_worker(*PREFORK):
        [letter] = await shop.until_letters(1)
        await shop.replay("is:pending", "failed", 1)
        assert shop.tried()["o-1"] == 6  # all retries anew
        shop.broken.unlink()
        await shop.replay("is:pending", "confirmed", 1)

    assert (letter["source"], letter["attempts"]) == ("shop", 3)
    assert len(attempts(letter)) == 3
    assert "tenant: eu" in letter["message"]["headers"]
    assert shop.charged() == ["o-1"]
