"""What must hold of a frozen office, whichever engine it is on."""

import asyncio

from cli.conftest import Command
from deadletter.core.policy import LimitMode
from deadletter.wiring.engines import open_engine

LETTERS = {"pending": 20, "reviewed": 2, "replayed": 8, "closed": 1, "discarded": 1}
OUTCOMES = [{"planned": 3}, {"failed": 2}, {"confirmed": 8}]


def check_office(dlq: Command, url: str) -> None:
    """Look at all of it, then go on with it."""
    at = ("--url", url)
    assert dlq(*at, "verify").code == 0
    stats = dlq(*at, "--json", "stats").document
    assert stats["letters"] == LETTERS
    boxes = {box["mailbox"]: box for box in stats["mailboxes"]}
    assert (boxes["orders"]["sent"], boxes["orders"]["handled"]) == (72, 45)
    replays = dlq(*at, "--json", "replay", "status").documents
    assert [one["counts"] for one in replays] == OUTCOMES
    [broken] = dlq(*at, "--json", "list", "message:broken").documents
    story = dlq(*at, "--json", "show", broken["id"]).document
    assert story["message"]["headers"] == ["tenant: eu"]
    audit = dlq(*at, "--json", "audit").documents
    assert {"note", "purge", "replay"} <= {entry["action"] for entry in audit}
    assert [one["name"] for one in dlq(*at, "--json", "tokens", "list").documents] == ["ada"]

    resumed = dlq(*at, "replay", "resume", replays[0]["id"])
    assert resumed.code == 0, resumed
    assert dlq(*at, "--json", "stats").document["letters"]["replaying"] == 3
    assert dlq(*at, "verify").code == 0
    asyncio.run(_check_queue(url))


async def _check_queue(url: str) -> None:
    """Look at the queue of the queue server: one of its three items was leased once."""
    engine = await open_engine(url)
    try:
        assert engine.items is not None
        queue = await engine.items.queue("frames")
        assert (queue.max_attempts, queue.limit_mode) == (0, LimitMode.REACHED)
        found = await engine.items.items("frames", 0, limit=10)
        assert sorted(item.payload for item in found) == [b"frame 0", b"frame 1", b"frame 2"]
        assert sum(item.attempts for item in found) == 1
    finally:
        await engine.close()
