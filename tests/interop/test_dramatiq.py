"""Dramatiq, with its real worker: there and back, twice, and killed on the way."""

from pathlib import Path

from deadletter.core.replay_rules import CopyState
from interop.redis_copies import emptied, state_of_copy
from interop.rig import Shop, System, halt_and_go_on, live_and_die, survive_kills
from servers import Server

DRAMATIQ = System(
    framework="dramatiq",
    module="dramatiq_shop",
    place="dramatiq:shop",
    worker=("dramatiq", "dramatiq_shop", "--processes", "1", "--threads", "1"),
)
NAMESPACED = System(
    framework="dramatiq",
    module="dramatiq_named_shop",
    place="dramatiq:market:shop",
    worker=("dramatiq", "dramatiq_named_shop", "--processes", "1", "--threads", "1"),
)


async def test_messages_die_twice_and_are_done_once(redis_server: Server, tmp_path: Path) -> None:
    emptied(redis_server)
    shop = Shop("dramatiq", redis_server, tmp_path, NAMESPACED.module)

    letters = await live_and_die(shop, NAMESPACED)

    last = letters[0]
    assert (last["source"], last["attempts"]) == ("market:shop", 2)
    assert (last["error_type"], last["consumer"]) == ("ValueError", "charge")
    fields = last["origin"]["fields"]
    assert (fields["actor"], fields["args"]) == ("charge", '["o-2"]')
    assert len({one["fingerprint"] for one in letters}) == 1
    state = await state_of_copy(shop, last["id"], home="market:shop")
    assert state is CopyState.HANDLED


async def test_a_canary_halts_and_is_confirmed(redis_server: Server, tmp_path: Path) -> None:
    emptied(redis_server)
    shop = Shop("dramatiq", redis_server, tmp_path)

    await halt_and_go_on(shop, DRAMATIQ, "confirmed")


async def test_messages_survive_kills_on_both_ways(redis_server: Server, tmp_path: Path) -> None:
    emptied(redis_server)
    await survive_kills(Shop("dramatiq", redis_server, tmp_path), DRAMATIQ)
