"""
Proof of conservation: what came in equals what left and what is still there.

Every mailbox counts the messages sent to it and each fate by which a message left; the office
counts every death. `verify` compares these sums with the messages and letters present.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.audit import Examined
from deadletter.core.failure import Reason
from deadletter.core.letter import OPEN
from deadletter.core.query import parse
from deadletter.core.seals import without_key
from deadletter.core.text import many
from deadletter.ports import Broker, Examining, Fate, LetterStore, QueueInfo, Reconciles

NAMED: Final = 20  # conflicts whose ids are listed
CONFLICTS: Final = f"is:conflict OR reason:{Reason.ID_CONFLICT}"
_CONFLICTS: Final = parse(CONFLICTS)
_PAGE: Final = 1_000  # letters
_ALL: Final = 1_000_000  # groups
_NO_KEY: Final = (
    "No key is set: seals show damage and mistakes, but whoever can write to the"
    " database can write them anew. Set signing_keys, and anchor the audit elsewhere."
)
_OLD_MESSAGES: Final = (
    "messages were sent before messages were known by identity: they are only counted."
)
_OLD_LETTERS: Final = (
    "letters have a digest of the old kind, of the body alone: their headers and"
    " histories were not checked. `dlq audit seal` seals them as they are now."
)
_NO_SUMS: Final = (
    "This office is from before sums were kept: letters that were deleted, and parts of"
    " replays that were changed, are not seen. `dlq audit seal` begins the sums."
)
_LATER: Final = "letters were sealed later than they were filed: changes before that are not seen."
_UNKNOWN: Final = "are made with a key that is not in signing_keys: they were not checked."


class Sums(Struct, frozen=True, kw_only=True):
    """The counts of one mailbox."""

    mailbox: str
    sent: int
    left: int  # by any fate
    present: int
    buried: int


class Conflicts(Struct, frozen=True, kw_only=True):
    """Letters whose message id or key was also used with another body."""

    total: int = 0
    open: int = 0  # of them, those that still need somebody
    ids: tuple[str, ...] = ()  # the latest ones, up to `NAMED`


class Verified(Struct, frozen=True, kw_only=True):
    """
    The findings of `verify`; without findings, nothing is missing.

    Without counts of the broker there are no `mailboxes`. `unseen` says in sentences what could
    not be checked.
    """

    findings: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    mailboxes: tuple[Sums, ...]
    letters: int
    conflicts: Conflicts = Conflicts()

    @property
    def ok(self) -> bool:
        return not self.findings


async def verify(
    broker: Broker, store: LetterStore | None, *, on_step: Callable[[], object] = lambda: None
) -> Verified:
    """
    Compare all counts; each finding is a sentence with its numbers.

    `on_step` is called after each step of `upkeep.VERIFY_STEPS`.
    """
    queues = await broker.queues() if broker.features.tallies else []
    sums = [sums_of(queue) for queue in queues]
    findings = [text for line in sums for text in unbalanced(line)]
    unseen = await _reconciled(broker, findings)
    if store is None:
        return Verified(
            findings=tuple(findings), unseen=tuple(unseen), mailboxes=tuple(sums), letters=0
        )
    on_step()
    counts = await store.counts()
    findings += await _deaths(store, sums)
    on_step()
    if isinstance(store, Examining):
        examined = await store.examine()
        findings += examined.findings
        unseen += _unseen(examined)
    else:
        findings += await store.verify()
        unseen.append(
            "This office has no seals: only the bodies of letters were checked,"
            " not their headers or histories."
        )
    on_step()
    conflicts = await _conflicts(store)
    on_step()
    return Verified(
        findings=tuple(findings),
        unseen=tuple(unseen),
        mailboxes=tuple(sums),
        letters=sum(sum(states.values()) for states in counts.values()),
        conflicts=conflicts,
    )


async def _reconciled(broker: Broker, findings: list[str]) -> list[str]:
    """Compare messages by identity where possible; return what could not be checked."""
    name = broker.features.engine
    if not broker.features.tallies:
        return [f"{name} does not count messages: nothing was added up for its mailboxes."]
    if not isinstance(broker, Reconciles):
        text = f"{name} counts messages but does not know them: a message that was"
        return [f"{text} replaced by another in a mailbox is not seen."]
    found = await broker.reconcile()
    findings += [
        f"mailbox {one.mailbox}: the messages in it are not the ones that were sent"
        " and have not left: ids, bodies or counts were changed"
        for one in found
        if not one.same
    ]
    unkeyed = [one.mailbox for one in found if one.lacks_key]
    if unkeyed:
        names = ", ".join(unkeyed[:NAMED])
        boxes = many(len(unkeyed), "mailbox", "mailboxes")
        findings.append(without_key(f"the sums of {boxes} were made ({names})"))
    unseen = []
    if unmarked := sum(one.unmarked for one in found):
        unseen.append(f"{unmarked:,} {_OLD_MESSAGES}")
    if unknown := sum(not one.is_known for one in found):
        unseen.append(f"The sums of {many(unknown, 'mailbox', 'mailboxes')} {_UNKNOWN}")
    return unseen


def _unseen(examined: Examined) -> list[str]:
    found: list[str] = []
    if not examined.keyed:
        found.append(_NO_KEY)
    if examined.unsealed:
        found.append(f"{examined.unsealed:,} {_OLD_LETTERS}")
    if examined.sums_absent and not examined.keyed:
        found.append(_NO_SUMS)
    if examined.later:
        found.append(f"{examined.later:,} {_LATER}")
    if examined.unknown or examined.entries_unknown or examined.sums_unknown:
        found.append(
            f"The seals of {examined.unknown:,} letters, {examined.entries_unknown:,}"
            f" audit entries and {examined.sums_unknown:,} sums {_UNKNOWN}"
        )
    return found


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
    Return how many messages are missing or too many, over all mailboxes.

    Only if the broker keeps counts. This is the cheap part of `verify`.
    """
    sums = [sums_of(queue) for queue in await broker.queues()]
    return sum(abs(line.sent - line.left - line.present) for line in sums)


def sums_of(queue: QueueInfo) -> Sums:
    """Return the counts of a mailbox, if its engine keeps any."""
    tally = queue.tally
    return Sums(
        mailbox=queue.options.name,
        sent=tally.get("sent", 0),
        left=sum(tally.get(fate, 0) for fate in Fate),
        present=queue.ready + queue.delayed + queue.claimed + queue.suspects,
        buried=tally.get(Fate.BURIED, 0),
    )


def unbalanced(line: Sums) -> list[str]:
    """Return a sentence if what was sent is not what left and what is there; else nothing."""
    missing = line.sent - line.left - line.present
    if missing == 0:
        return []
    numbers = f"{line.sent:,} sent, {line.left:,} left it, {line.present:,} are in it"
    if missing > 0:
        are = many(missing, "message is", "messages are")
        return [f"mailbox {line.mailbox}: {are} missing ({numbers})"]
    return [f"mailbox {line.mailbox}: {-missing:,} more than were ever sent ({numbers})"]


async def _deaths(store: LetterStore, sums: Sequence[Sums]) -> list[str]:
    # In all, not by mailbox: a letter that was replayed elsewhere and died there
    # is buried there, but counted where it came from.
    groups = await store.groups(only_open=False, limit=_ALL)
    deaths = sum(group.total for group in groups)
    buried = sum(line.buried for line in sums)
    if buried <= deaths:
        return []
    were = many(buried, "message was", "messages were")
    known = many(deaths, "death is", "deaths are")
    missing = many(buried - deaths, "letter is", "letters are")
    return [f"{were} buried, but only {known} known here: {missing} missing"]
