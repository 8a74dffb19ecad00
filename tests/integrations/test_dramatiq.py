"""Dramatiq: real workers that file what fails, and confirm what is sent back."""

import json
from pathlib import Path
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from integrations.rig import FilingShop, attempts, survive_kills
from interop.redis_copies import emptied
from interop.rig import PATIENCE
from servers import Server

WORKER = ("dramatiq", "filing_dramatiq", "--processes", "1", "--threads", "1")
_SENDING = frozenset({"redis_message_id"})


@pytest.fixture
def client(redis_server: Server) -> Any:
    return emptied(redis_server)


@pytest.fixture
def shop(client: Any, redis_server: Server, tmp_path: Path) -> FilingShop:
    return FilingShop("dramatiq", redis_server, tmp_path, "filing_dramatiq")


async def test_failed_messages_are_filed_and_their_replays_confirmed(
    shop: FilingShop, client: Any
) -> None:
    shop.broken.touch()
    shop.ask("o-1", token="tok-12345")

    with shop.live_worker(*WORKER):
        [letter] = await shop.until_letters(1)
        await eventually(lambda: not client.keys("dramatiq:shop*"), within=PATIENCE)
        shop.broken.unlink()
        await shop.replay("is:pending", "confirmed", 1)

    assert (letter["source"], letter["consumer"]) == ("shop", "charge")
    assert (letter["error_type"], letter["error_text"]) == ("ValueError", "order o-1 has no price")
    assert letter["reason_text"] == "failed for good in a worker of Dramatiq"
    assert letter["origin"]["fields"]["args"] == '["o-1"]'
    assert "tok-12345" not in json.dumps({**letter, "message": None})
    [attempt] = attempts(letter)
    assert 'till.py", line' in attempt["stack"]
    assert shop.charged() == ["o-1"]
    assert [one["state"] for one in shop.letters()] == ["replayed"]


async def test_a_replayed_message_is_the_same_byte_for_byte(shop: FilingShop, client: Any) -> None:
    shop.broken.touch()
    shop.ask("o-1", "deliver")
    [sent] = client.hvals("dramatiq:shop.msgs")

    with shop.live_worker(*WORKER):
        await shop.until_letters(1)
    shop.dlq("replay", "is:pending", "--yes", "--presume", "never")

    [copy] = client.hvals("dramatiq:shop.msgs")
    told, before = json.loads(copy), json.loads(sent)
    own = {k: v for k, v in told["options"].items() if not k.startswith("dlq-")}
    assert set(own) - set(before["options"]) <= _SENDING
    told["options"] = {**before["options"], **{k: own[k] for k in before["options"]}}
    told["options"]["redis_message_id"] = before["options"]["redis_message_id"]
    assert json.dumps(told, separators=(",", ":")).encode() == sent


async def test_only_the_last_attempt_is_filed_with_the_errors_of_all(shop: FilingShop) -> None:
    shop.broken.touch()
    shop.ask("o-1", "deliver")

    with shop.live_worker(*WORKER):
        [before] = await shop.until_letters(1)
        await shop.replay("is:pending", "failed", 1)
        [letter] = await shop.until_letters(1, "is:pending")

    told = attempts(before)
    assert [one["number"] for one in told] == [1, 2, 3]
    assert {one["text"] for one in told} == {"order o-1 has no price"}
    assert (before["attempts"], before["reason"]) == (3, "attempts-exhausted")
    assert (letter["id"], letter["attempts"], letter["replays"]) == (before["id"], 6, 1)
    assert shop.tried()["o-1"] == 6


async def test_without_an_office_messages_stay_in_the_dead_queue(
    client: Any, redis_server: Server, tmp_path: Path
) -> None:
    nowhere = "postgresql://nobody:secret-1@127.0.0.1:1/none"
    shop = FilingShop("dramatiq", redis_server, tmp_path, "filing_dramatiq", nowhere)
    shop.broken.touch()
    shop.ask("o-1")

    with shop.live_worker(*WORKER, TIMEOUT="2"):
        await eventually(lambda: client.zcard("dramatiq:shop.XQ"), within=PATIENCE)
        shop.broken.unlink()
        shop.ask("o-2")
        await shop.until_charged(1)

    assert "filing-failed" in shop.told()
    assert "secret-1" not in shop.told()


async def test_messages_survive_kills_while_they_are_filed(shop: FilingShop) -> None:
    await survive_kills(shop, WORKER)
