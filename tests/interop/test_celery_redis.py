"""Celery on Redis, with its real worker: there and back, twice, and killed."""

from pathlib import Path

import pytest
from msgspec import structs

from deadletter.core.replay_rules import CopyState
from interop.redis_copies import emptied, state_of_copy
from interop.rig import Shop, System, halt_and_go_on, live_and_die, survive_kills
from servers import Server

QUIET = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")
CELERY = System(
    framework="celery",
    module="celery_redis_shop",
    place="celery:dead",
    home="shop",
    worker=("celery", "-A", "celery_redis_shop", "worker", "--pool", "solo", *QUIET),
    options="?results=0",
)


@pytest.fixture
def shop(redis_server: Server, tmp_path: Path) -> Shop:
    emptied(redis_server)
    return Shop("celery", redis_server, tmp_path, CELERY.module)


async def test_tasks_die_twice_and_are_done_once(shop: Shop) -> None:
    letters = await live_and_die(shop, CELERY)

    last = letters[0]
    assert last["source"] == "celery:dead"
    assert last["attempts"] == 2
    assert (last["error_type"], last["consumer"]) == ("ValueError", "shop.charge")
    assert last["error_text"] == "order o-2 has no price"
    fields = last["origin"]["fields"]
    assert (fields["task"], fields["args"]) == ("shop.charge", '["o-2"]')
    [attempt] = [one["attempt"] for one in last["story"] if one["attempt"]]
    assert "till.py" in attempt["stack"]
    assert len({one["fingerprint"] for one in letters}) == 1
    # Twice for each death: a retry went to the queue that the copy was sent to.
    assert shop.tried() == {f"o-{number}": 5 for number in range(3)}
    assert await state_of_copy(shop, last["id"]) is CopyState.HANDLED
    unnamed = await state_of_copy(shop, last["id"], results=False)
    assert unnamed is CopyState.UNKNOWN


async def test_a_canary_halts_and_is_confirmed_by_results(shop: Shop) -> None:
    await halt_and_go_on(shop, CELERY, "confirmed")


async def test_a_canary_is_presumed_handled_without_results(shop: Shop) -> None:
    await halt_and_go_on(shop, structs.replace(CELERY, options=""), "presumed")


async def test_tasks_survive_kills_on_both_ways(shop: Shop) -> None:
    await survive_kills(shop, CELERY)
