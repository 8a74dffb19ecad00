"""Damages that verify must notice, as SQL that an office's own tables understand."""

from msgspec.structs import replace

from deadletter.core.campaign import Care, Outcome
from deadletter.core.message import Message
from deadletter.core.seals import ACCEPTED
from deadletter.office.verify import verify
from deadletter.ports import Acked, Engine, Examining, Fate, LetterStore, Reconciles, ReplaySettled
from deadletter.testing.letters_bench import ANNA, START, a_campaign, a_letter

_GONE = (
    "DELETE FROM letter_contents WHERE letter = {first}",
    "DELETE FROM letters WHERE seq = {first}",
    "UPDATE office SET kept = kept - 1",
    "UPDATE groups SET open = open - 1 WHERE fingerprint = 'f-1'",
    "UPDATE group_states SET n = n - 1 WHERE fingerprint = 'f-1' AND state = 'pending'",
    "UPDATE source_states SET n = n - 1 WHERE source = 'orders' AND state = 'pending'",
)
_DELETED = (*_GONE, "UPDATE groups SET total = total - 1 WHERE fingerprint = 'f-1'")

MAILBOXES = frozenset(
    {
        "fates swapped in the tally",
        "a message's body replaced",
        "one handled more and one buried less",
        "message ids replaced",
        "sent and handled both one more",
    }
)
"""Those of mailboxes, which not every office has."""

TABLES = frozenset({"contents deleted"})
"""Those of tables that hold a part of letters."""

DAMAGES: dict[str, tuple[str, ...]] = {
    "body and digest swapped together": (
        """UPDATE letter_contents SET (body, digest) = (
            SELECT body, digest FROM letter_contents WHERE letter = {second})
        WHERE letter = {first}""",
    ),
    "headers swapped": (
        """UPDATE letter_contents SET rest = (
            SELECT rest FROM letter_contents WHERE letter = {second})
        WHERE letter = {first}""",
    ),
    "history emptied": ("UPDATE letter_contents SET history = '' WHERE letter = {first}",),
    "attempts changed": ("UPDATE letters SET attempts = 9 WHERE seq = {first}",),
    "another source": ("UPDATE letters SET message_id = 'm-x' WHERE seq = {first}",),
    "one death more in a group": ("UPDATE groups SET total = total + 1 WHERE fingerprint = 'f-1'",),
    "one death less in a group": ("UPDATE groups SET total = total - 1 WHERE fingerprint = 'f-1'",),
    "deaths moved between groups": (
        "UPDATE groups SET total = total + 1 WHERE fingerprint = 'f-1'",
        "UPDATE groups SET total = total - 1 WHERE fingerprint = 'f-2'",
    ),
    "kept and purged both one more": ("UPDATE office SET kept = kept + 1, purged = purged + 1",),
    "kept and expired both one less": ("UPDATE office SET kept = kept - 1, expired = expired - 1",),
    "a campaign deleted": (
        "DELETE FROM campaign_items",
        "DELETE FROM campaign_outcomes",
        "DELETE FROM campaigns",
    ),
    "a campaign's actor changed": ("UPDATE campaigns SET actor = 'mallory'",),
    "a campaign's reason changed": ("UPDATE campaigns SET reason = 'a drill'",),
    "a campaign's search changed": ("UPDATE campaigns SET query = 'is:closed'",),
    "an item's outcome changed": (
        "UPDATE campaign_items SET outcome = 'failed' WHERE letter = {replayed}",
        "UPDATE campaign_outcomes SET n = n + 1 WHERE outcome = 'failed'",
        "UPDATE campaign_outcomes SET n = n - 1 WHERE outcome = 'confirmed'",
    ),
    "an item taken out": (
        "DELETE FROM campaign_items WHERE letter = {replayed}",
        "UPDATE campaign_outcomes SET n = n - 1 WHERE outcome = 'confirmed'",
        "UPDATE campaigns SET items = items - 1 WHERE id = 'c-1'",
    ),
    "an item put in": (
        """INSERT INTO campaign_items (campaign, ordinal, letter, outcome)
        SELECT campaign, 9, {second}, 'failed' FROM campaign_outcomes
        WHERE outcome = 'failed'""",
        "UPDATE campaign_outcomes SET n = n + 1 WHERE outcome = 'failed'",
        "UPDATE campaigns SET items = items + 1 WHERE id = 'c-1'",
    ),
    "an item's letter replaced": (
        "UPDATE campaign_items SET letter = {first} WHERE letter = {failed}",
    ),
    "a letter deleted with its counters": _DELETED,
    "a letter deleted, and its death kept": _GONE,
    "contents deleted": ("DELETE FROM letter_contents WHERE letter = {first}",),
    "one more kept": ("UPDATE office SET kept = kept + 1",),
    "one less kept": ("UPDATE office SET kept = kept - 1",),
    "one letter more of a source": ("UPDATE source_states SET n = n + 1 WHERE state = 'pending'",),
    "one letter less of a source": ("UPDATE source_states SET n = n - 1 WHERE state = 'pending'",),
    "one letter more in a group": ("UPDATE group_states SET n = n + 1 WHERE fingerprint = 'f-2'",),
    "one open letter less in a group": (
        "UPDATE groups SET open = open - 1 WHERE fingerprint = 'f-2'",
    ),
    "one letter more of an outcome": (
        "UPDATE campaign_outcomes SET n = n + 1 WHERE outcome = 'confirmed'",
    ),
    "fates swapped in the tally": (
        "UPDATE tally SET fate = 'x' WHERE fate = 'handled'",
        "UPDATE tally SET fate = 'handled' WHERE fate = 'buried'",
        "UPDATE tally SET fate = 'buried' WHERE fate = 'x'",
    ),
    "a message's body replaced": (
        """UPDATE messages SET body = (SELECT body FROM messages m
            WHERE m.seq = (SELECT max(seq) FROM messages))
        WHERE seq = (SELECT min(seq) FROM messages)""",
    ),
    "one handled more and one buried less": (
        "UPDATE tally SET n = n + 1 WHERE fate = 'handled'",
        "UPDATE tally SET n = n - 1 WHERE fate = 'buried'",
    ),
}


BY_SUMS = (
    "a letter deleted with its counters",
    "deaths moved between groups",
    "an item's outcome changed",
    "a planned item replaced",
)
"""Some that sums alone show: these must be noticed with a key as well."""

KEY = b"0123456789abcdef0123456789abcdef"
OTHER_KEY = b"fedcba9876543210fedcba9876543210"


def use(engine: Engine, *keys: bytes) -> None:
    """Have an engine seal with these keys from now on."""
    for part in (engine.letters, engine.broker):
        if isinstance(part, Examining | Reconciles):
            part.sealing.use(keys)


async def findings(engine: Engine) -> str:
    """What verify finds, in one text."""
    return "; ".join((await verify(engine.broker, engine.letters)).findings)


async def send_and_handle(engine: Engine) -> None:
    """Send a message, handle two, and keep a letter."""
    message = a_letter().message
    await engine.broker.sink("orders").send([message])
    source = engine.broker.source("orders")
    for delivery in await source.receive(limit=2, wait=0, lease=60):
        await source.settle([Acked(delivery)])
    assert engine.letters is not None
    await engine.letters.keep([a_letter()])


async def sealed_anew(engine: Engine) -> None:
    """Do what `dlq audit seal` does."""
    store = engine.letters
    assert isinstance(store, Examining)
    if isinstance(engine.broker, Reconciles):
        await engine.broker.rekey()
    after: str | None = ""
    while after is not None:
        after = (await store.reseal(after)).after
    await engine.letters.record(ACCEPTED, "audit", ANNA)


async def furnish(engine: Engine) -> dict[str, str]:
    """Fill an engine with some of everything; the ids of three letters by name."""
    store = engine.letters
    assert store is not None
    messages = [_message(n) for n in range(12)]
    await engine.broker.sink("orders").send(messages)
    source = engine.broker.source("orders")
    first, second, third = await source.receive(limit=3, wait=0, lease=60)
    await source.settle([Acked(first, Fate.BURIED), Acked(second), Acked(third)])
    return await furnish_office(store)


async def furnish_keys(store: LetterStore) -> None:
    """Add a campaign some of whose letters wait for others of their key."""
    letters = [a_letter(key="k") for _ in range(3)]
    kept = [one.id for one in await store.keep(letters)]
    campaign = a_campaign("c-keys", care=Care(key_order=True))
    await store.plan_replay(campaign, kept)
    (taken,) = await store.take_replay(campaign.id, limit=1)
    await store.sent_replay(campaign.id, [taken.letter_id])


async def furnish_office(store: LetterStore) -> dict[str, str]:
    """Fill an office with some of everything; the ids of five letters by name."""
    letters = [a_letter(b"{%d}" % n, at=START, headers=(("n", b"%d" % n),)) for n in range(6)]
    letters[5] = replace(letters[5], head=replace(letters[5].head, fingerprint="f-2"))
    kept = [one.id for one in await store.keep(letters)]
    campaign = a_campaign()
    await store.plan_replay(campaign, kept[2:5])
    taken = await store.take_replay(campaign.id, limit=2)
    await store.sent_replay(campaign.id, [one.letter_id for one in taken])
    outcomes = (Outcome.CONFIRMED, Outcome.FAILED)
    news = [
        ReplaySettled(one.letter_id, one.generation, outcome)
        for one, outcome in zip(taken, outcomes, strict=True)
    ]
    await store.settle_replays(news)
    await store.plan_replay(a_campaign("c-idle"), kept[:1])
    await _purge_one(store)
    replayed, failed = (one.letter_id for one in taken)
    (planned,) = set(kept[2:5]) - {replayed, failed}
    return {
        "first": kept[0],
        "second": kept[1],
        "replayed": replayed,
        "failed": failed,
        "planned": planned,
        "last": kept[5],
    }


async def _purge_one(store: LetterStore) -> None:
    (kept,) = await store.keep([a_letter(b"gone")])
    await store.purge([kept.id], ANNA)


def _message(n: int) -> Message:
    letter = a_letter(b"[%d]" % n)
    return letter.message
