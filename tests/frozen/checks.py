"""What must hold of a frozen office, whichever engine it is on."""

from cli.conftest import Command

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
