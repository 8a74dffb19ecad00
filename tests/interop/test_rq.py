"""RQ, with its real worker: there and back, twice, and killed on the way."""

from pathlib import Path

import pytest

from deadletter.core.replay_rules import CopyState
from interop.redis_copies import emptied, state_of_copy
from interop.rig import Shop, System, halt_and_go_on, live_and_die, survive_kills
from servers import Server

RQ = System(
    framework="rq",
    module="rq_shop",
    place="rq:shop",
    worker=("rq.cli", "worker", "shop", "--quiet", "--url", "SERVER"),
)


@pytest.fixture
def shop(redis_server: Server, tmp_path: Path) -> Shop:
    emptied(redis_server)
    return Shop("rq", redis_server, tmp_path)


async def test_jobs_die_twice_and_are_done_once(shop: Shop) -> None:
    letters = await live_and_die(shop, RQ)

    last = letters[0]
    assert last["attempts"] == 1
    assert last["error_text"] == "order o-2 has no price"
    assert last["origin"]["fields"]["call"] == "rq_shop.charge('o-2')"
    assert last["origin"]["fields"]["function"] == "rq_shop.charge"
    assert len({one["fingerprint"] for one in letters}) == 1
    assert await state_of_copy(shop, last["id"]) is CopyState.HANDLED
    earlier = await state_of_copy(shop, last["id"], generation=1)
    assert earlier is CopyState.UNKNOWN


async def test_a_canary_halts_and_is_confirmed(shop: Shop) -> None:
    await halt_and_go_on(shop, RQ, "confirmed")


async def test_jobs_survive_kills_on_both_ways(shop: Shop) -> None:
    await survive_kills(shop, RQ)
