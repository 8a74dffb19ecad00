"""
Proof of conservation: what came in is what went out and what is still there.

Every mailbox counts what was sent to it and each fate by which a message left;
the office counts every death. This holds the sums against what is there.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.decision import Reason
from deadletter.core.letter import OPEN
from deadletter.core.query import parse
from deadletter.ports import Broker, Fate, LetterStore, QueueInfo

NAMED: Final = 20  # conflicts whose ids are listed
CONFLICTS: Final = f"is:conflict OR reason:{Reason.ID_CONFLICT}"
_CONFLICTS: Final = parse(CONFLICTS)
_PAGE: Final = 1_000  # letters
_ALL: Final = 1_000_000  # groups


class Sums(Struct, frozen=True, kw_only=True):
    """One mailbox, added up."""

    mailbox: str
    sent: int
    left: int  # by any fate
    present: int
    buried: int


class Conflicts(Struct, frozen=True, kw_only=True):
    """Letters whose message id or key was used with another body as well."""

    total: int = 0
    open: int = 0  # of them, those that still need somebody
    ids: tuple[str, ...] = ()  # the latest ones, up to `NAMED`


class Verified(Struct, frozen=True, kw_only=True):
    """
    What `verify` found; nothing is missing where `findings` is empty.

    Where the broker counts nothing there are no `mailboxes`: nothing to add up.
    """

    findings: tuple[str, ...]
    mailboxes: tuple[Sums, ...]
    letters: int
    conflicts: Conflicts = Conflicts()

    @property
    def ok(self) -> bool:
        return not self.findings


async def verify(broker: Broker, store: LetterStore | None) -> Verified:
    """Add everything up; each finding is a sentence with its numbers."""
    queues = await broker.queues() if broker.features.tallies else []
    sums = [_sums(queue) for queue in queues]
    findings = [text for line in sums for text in _conserved(line)]
    if store is None:
        return Verified(findings=tuple(findings), mailboxes=tuple(sums), letters=0)
    counts = await store.counts()
    findings += await _deaths(store, sums)
    findings += await store.verify()
    return Verified(
        findings=tuple(findings),
        mailboxes=tuple(sums),
        letters=sum(sum(states.values()) for states in counts.values()),
        conflicts=await _conflicts(store),
    )


async def _conflicts(store: LetterStore) -> Conflicts:
    total = still_open = 0
    ids: list[str] = []
    after: str | None = None
    while True:
        page = await store.find(_CONFLICTS, limit=_PAGE, after=after)
        total += len(page.heads)
        still_open += sum(head.state in OPEN for head in page.heads)
        ids += (head.id for head in page.heads[: NAMED - len(ids)])
        after = page.after
        if after is None:
            return Conflicts(total=total, open=still_open, ids=tuple(ids))


async def mismatch(broker: Broker) -> int:
    """
    How many messages are missing or too many, over all mailboxes: the cheap part.

    Only where the broker keeps tallies; elsewhere there is nothing to add up.
    """
    sums = [_sums(queue) for queue in await broker.queues()]
    return sum(abs(line.sent - line.left - line.present) for line in sums)


def _sums(queue: QueueInfo) -> Sums:
    tally = queue.tally
    return Sums(
        mailbox=queue.options.name,
        sent=tally.get("sent", 0),
        left=sum(tally.get(fate, 0) for fate in Fate),
        present=queue.ready + queue.delayed + queue.claimed + queue.suspects,
        buried=tally.get(Fate.BURIED, 0),
    )


def _conserved(line: Sums) -> list[str]:
    missing = line.sent - line.left - line.present
    if missing == 0:
        return []
    numbers = f"{line.sent:,} sent, {line.left:,} left it, {line.present:,} are in it"
    if missing > 0:
        return [f"mailbox {line.mailbox}: {missing:,} messages are missing ({numbers})"]
    return [
        f"mailbox {line.mailbox}: {-missing:,} more than were ever sent ({numbers})"
    ]


async def _deaths(store: LetterStore, sums: Sequence[Sums]) -> list[str]:
    # In all, not by mailbox: a letter that was replayed elsewhere and died there
    # is buried there, but counted where it came from.
    groups = await store.groups(only_open=False, limit=_ALL)
    deaths = sum(group.total for group in groups)
    buried = sum(line.buried for line in sums)
    if buried <= deaths:
        return []
    text = f"{buried:,} messages were buried, but only {deaths:,} deaths are known here"
    return [f"{text}: {buried - deaths:,} letters are missing"]
