"""Celery: real workers that file what fails, and confirm what is sent back."""

from pathlib import Path

import pytest

from integrations.rig import FilingShop
from interop.redis_copies import emptied
from servers import Server

WORKER = ("celery", "-A", "filing_celery", "worker", "--without-gossip", "--without-mingle")
POOLS = {
    "solo": (*WORKER, "--pool", "solo"),
    "threads": (*WORKER, "--pool", "threads", "--concurrency", "2"),
    "prefork": (*WORKER, "--pool", "prefork", "--concurrency", "2"),
}


@pytest.fixture
def shop(redis_server: Server, tmp_path: Path) -> FilingShop:
    emptied(redis_server)
    return FilingShop("celery", redis_server, tmp_path, "filing_celery")


@pytest.mark.parametrize("pool", POOLS)
async def test_a_failed_task_is_filed_replayed_and_confirmed(shop: FilingShop, pool: str) -> None:
    shop.broken.touch()
    with shop.live_worker(*POOLS[pool]):
        shop.ask("o-1", kwargs={"token": "tok"})
        [letter] = await shop.until_letters(1)
        print(letter)

    shop.broken.unlink()
    with shop.live_worker(*POOLS[pool]):
        await shop.replay("is:pending", "confirmed", 1)
    assert shop.charged() == ["o-1"]
    [head] = shop.letters()
    assert head["state"] == "replayed"
