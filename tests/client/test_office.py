"""The local office and the remote office behave the same."""

import inspect
import io
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from client.serving import Served, beside
from deadletter.client import Client
from deadletter.client.office import RemoteOffice
from deadletter.core.campaign import CampaignState, Outcome, Verdict
from deadletter.core.deaths import By as DeathsBy
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import By, Changes, DeadLetter, GroupStatus, State
from deadletter.core.patch import parse_patch
from deadletter.office.audit import AuditFilter
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.office import Office
from deadletter.office.office_protocol import GroupsProtocol, MailboxesProtocol, OfficeProtocol
from deadletter.office.repair import RepairsProtocol, RepairVerdict
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replays import ReplayRequest, ReplaysProtocol
from deadletter.office.selection import found_by
from deadletter.ports import QueueOptions
from deadletter.system import SystemClock, SystemDice
from office.making import make_letters

BY = By("anna", "because")


@pytest.fixture(params=["here", "behind a server"])
async def office(request: pytest.FixtureRequest, server: Served) -> AsyncIterator[OfficeProtocol]:
    if request.param == "here":
        async with beside(server) as engine:
            yield Office(engine, SystemClock(), SystemDice())
        return
    async with Client(server.url) as client:
        yield client.office


@pytest.fixture
def letters(server: Served) -> list[DeadLetter]:
    letters = make_letters(3)
    server.keep(*letters)
    return letters


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (OfficeProtocol, None),
        (LettersProtocol, "letters"),
        (GroupsProtocol, "groups"),
        (ReplaysProtocol, "replays"),
        (RepairsProtocol, "repairs"),
        (MailboxesProtocol, "mailboxes"),
    ],
)
async def test_both_offices_take_the_same_arguments(
    protocol: type, name: str | None, server: Served
) -> None:
    async with beside(server) as engine, Client(server.url) as client:
        here: Any = Office(engine, SystemClock(), SystemDice())
        there: Any = client.office
        for one in (here, there):
            part = getattr(one, name) if name else one
            for verb, asked in inspect.getmembers(protocol, inspect.isfunction):
                if verb.startswith("_"):
                    continue
                given = inspect.signature(getattr(part, verb)).parameters
                wanted = [known for known in inspect.signature(asked).parameters if known != "self"]
                assert [known for known in given if known in wanted] == wanted, verb


async def test_a_replay_is_chosen_by_a_search(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    await office.mailboxes.create(QueueOptions(name=letters[0].head.source), BY)

    request = ReplayRequest(chosen=await office.choose("is:pending"), by=BY, limit=2)
    plan = await office.replays.plan(request)
    replay = await office.replays.begin(request)
    sent = await office.replays.run(replay.id)

    assert plan.verdicts == {"ready": 2}
    assert sent.counts == {Outcome.SENT: 2}


@pytest.mark.parametrize(
    ("query", "error"), [("timeout", ConfigError), ("source:nothing", NotFound)]
)
async def test_letters_to_replay_are_named_by_fields(
    office: OfficeProtocol, letters: list[DeadLetter], query: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await office.choose(query)


async def test_letters_are_found_read_and_edited(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    page = await office.letters.search("source:orders", limit=2)
    count = await office.letters.count("source:orders")
    head = await office.letters.head(letters[0].id[:8])
    details = await office.letters.details(head.id, BY)
    revealed = await office.letters.details(head.id, BY, reveal=True)
    edited = await office.letters.edit(head.id, Changes(body=b"mended"), BY)
    _, message = await office.letters.message(head.id, BY)
    _, original = await office.letters.message(head.id, BY, original=True)

    assert (len(page.heads), page.after is None, count.letters) == (2, False, 3)
    assert head == letters[0].head
    assert (details.message, revealed.message) == (None, letters[0].message)
    assert edited.revision == head.revision + 1
    assert (message.body, original) == (b"mended", letters[0].message)
    with pytest.raises(Conflict):
        await office.letters.edit(head.id, Changes(body=b"!"), BY, revision=head.revision)
    with pytest.raises(NotFound):
        await office.letters.head("aaaaaaaaaaaa")


async def test_letters_are_repaired_and_restored(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    ids = [letter.id for letter in letters]
    patch = parse_patch('{"order": 17.50}', '{"order": 1}')

    plan = await office.repairs.plan([*ids, "a" * 24], patch, samples=1)
    done = await office.repairs.apply([*ids, "a" * 24], patch, BY)
    (first,) = [one for one in letters if one.message.body == b'{"order": 1}']
    _, message = await office.letters.message(first.id, BY)
    back = await office.repairs.undo(ids, By("anna", "undo"))

    assert plan.verdicts == {
        RepairVerdict.CHANGE: 1,
        RepairVerdict.OTHER_VALUE: 2,
        RepairVerdict.GONE: 1,
    }
    assert [one.letter_id for one in plan.samples] == [first.id]
    assert (done.asked, done.moved) == (4, 1)
    assert done.skipped == {"have another value there": 2, "no longer there": 1}
    assert message.body == b'{"order": 17.50}'
    assert (back.moved, back.skipped) == (1, {"have their original already": 2})
    with pytest.raises(ConfigError, match="reason"):
        await office.repairs.apply(ids, patch, By("anna"))


async def test_letters_are_moved_and_the_audit_says_so(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    ids = [letter.id for letter in letters]

    moved = [
        await office.letters.review(ids, BY),
        await office.letters.close(ids[:1], BY),
        await office.letters.reopen(ids[:1], BY),
        await office.letters.discard(ids[1:2], BY),
        await office.letters.restore(ids[1:2], BY),
        await office.letters.note(ids[:2], "look here", BY),
        await office.letters.purge(ids[2:], BY),
    ]
    again = await office.letters.restore(ids[:1], BY)
    acts = await office.audit(target=ids[0])

    assert [one.moved for one in moved] == [3, 1, 1, 1, 1, 2, 1]
    assert (again.moved, again.skipped) == (0, {"is pending": 1})
    assert await office.letters.counts() == {"orders": {State.PENDING: 2}}
    assert [one.action for one in acts][-3:] == ["move", "move", "note"]


async def test_groups_are_listed_and_resolved(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    (line,) = (await office.groups.list()).groups
    resolved = await office.groups.set_status(
        line.fingerprint[:6], GroupStatus.RESOLVED, BY, owner="bea", version="1.9"
    )
    variants = await office.groups.variants(line.fingerprint)
    versions = await office.groups.versions(line.fingerprint)
    split = await office.groups.split(line.fingerprint, "body.order:1", BY)
    rules = await office.groups.rules()
    undone = await office.groups.undo(split.group, BY)

    assert (line.open, line.source) == (3, "orders")
    assert (resolved.status, resolved.owner, resolved.note) == ("resolved", "bea", "because")
    assert variants.letters == 3
    assert [one.version for one in versions.versions] == ["1.8.0"]
    assert (versions.fix, versions.since_fix) == ("1.9", 0)
    assert (split.moved, [rule.target for rule in rules]) == (1, [split.group])
    assert (undone.group, undone.moved) == (line.fingerprint, 1)


async def test_a_replay_is_planned_started_paused_and_cancelled(
    office: OfficeProtocol, letters: list[DeadLetter], server: Served
) -> None:
    await office.mailboxes.create(QueueOptions(name="orders"), BY)
    chosen = await found_by(office.letters, "source:orders")
    request = ReplayRequest(chosen=chosen, by=BY, limit=2)

    plan = await office.replays.plan(request)
    verdicts = [one async for some in office.replays.verdicts(request) for one in some]
    held = await office.replays.begin(request, hold=True)
    listed = (await office.replays.page()).replays
    cancelled = await office.replays.cancel(held.id, BY)

    assert (plan.sendable, [one.verdict for one in verdicts]) == (2, ["ready", "ready"])
    assert held.state is CampaignState.PLANNED
    assert [one.id for one in listed] == [held.id]
    assert cancelled.state is CampaignState.CANCELLED

    started = await office.replays.begin(ReplayRequest(chosen=chosen, by=BY))
    sent = await office.replays.run(started.id)
    items = await office.replays.outcomes(started.id)
    confirmed = await office.replays.confirm([one.message.id for one in letters], BY)

    assert sent.counts.get(Outcome.SENT) == 3
    assert [one.outcome for one in items.items] == [Outcome.SENT] * 3
    assert confirmed.confirmed == 3
    assert (await office.mailboxes.get("orders")).ready == 3


async def test_plans_that_nobody_starts_do_not_stay(
    server: Served, letters: list[DeadLetter]
) -> None:
    async with Client(server.url) as client:
        await client.office.mailboxes.create(QueueOptions(name="orders"), BY)
        chosen = await found_by(client.office.letters, "source:orders")
        await client.office.replays.plan(ReplayRequest(chosen=chosen, by=BY))

    async with Client(server.url) as client:
        (left,) = (await client.office.replays.page()).replays

    assert left.state is CampaignState.CANCELLED


async def test_a_frozen_replay_is_judged_and_started_as_agreed(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    await office.mailboxes.create(QueueOptions(name="orders"), BY)
    request = ReplayRequest(chosen=await office.choose("is:pending"), by=BY)
    looks: list[int] = []

    frozen = await office.replays.freeze(request)
    judged = await office.replays.judge(frozen.id, on_progress=lambda now: looks.append(1))
    ready = await office.replays.kept_verdicts(frozen.id, verdict=Verdict.READY, limit=2)
    with pytest.raises(Conflict, match="not 9"):
        await office.replays.agree(frozen.id, BY, PlanWish(), expect=9)
    agreed = await office.replays.agree(
        frozen.id, BY, PlanWish(leave_out=(Verdict.ORDERED,)), expect=3
    )
    with pytest.raises(Conflict, match="somebody else"):
        await office.replays.approve(frozen.id, By(frozen.actor, "fine"), expect=3)
    await office.replays.resume(frozen.id, BY)
    await office.replays.run(frozen.id)
    progress = await office.replays.progress(frozen.id)
    aftermath = await office.replays.aftermath(frozen.id)
    sent = await office.replays.outcomes(frozen.id, only=[Outcome.SENT], limit=2)
    failed = await office.replays.outcomes(frozen.id, only=[Outcome.FAILED])

    assert (frozen.state, looks != []) == (CampaignState.PLANNED, True)
    assert judged.plan is not None
    assert judged.plan.verdicts == {Verdict.READY: 3}
    assert (len(ready.letters), ready.after) == (2, 2)
    assert agreed.care.skip == (Verdict.ORDERED,)
    assert (progress.total, progress.on_the_way, len(progress.stages)) == (3, 3, 1)
    assert (aftermath.failed, aftermath.causes) == (0, ())
    assert (len(sent.items), failed.items) == (2, ())


async def test_mailboxes_are_made_changed_and_deleted(office: OfficeProtocol) -> None:
    await office.mailboxes.create(QueueOptions(name="returns"), BY)
    changed = await office.mailboxes.update("returns", {"max_attempts": 7}, BY)
    names = [queue.options.name for queue in await office.mailboxes.list()]
    gone = await office.mailboxes.delete("returns", BY)

    assert (changed.max_attempts, names, gone) == (7, ["returns"], 0)
    assert list(await office.mailboxes.outages()) == []
    with pytest.raises(NotFound):
        await office.mailboxes.release("returns", BY)


async def test_letters_go_out_and_come_back(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    archive, sheet = io.BytesIO(), io.BytesIO()
    written = await office.export("", archive, BY, limit=None, name="all.jsonl")
    lines = await office.sheet("", sheet, BY, limit=2, name="some.csv")
    await office.letters.purge([letters[0].id], BY)
    archive.seek(0)
    taken = await office.import_(archive, BY, name="all.jsonl")

    assert (written, lines, sheet.getvalue().count(b"\r\n")) == (3, 2, 3)
    assert (taken.added, taken.known) == (1, 2)
    assert (await office.stats()).open == 3
    assert list(await office.waiting()) == []


async def test_deaths_over_time_and_their_marks_are_charted(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    latest = max(letter.head.dead_at for letter in letters)
    span = {"since": latest - timedelta(days=20), "until": latest + timedelta(days=1)}

    chart = await office.deaths(**span, step=timedelta(days=1), by=DeathsBy.SOURCE, most=1)
    marks = await office.marks(**span)

    assert chart.total == len(letters)
    assert sum(map(sum, chart.series().values())) == len(letters)
    assert [mark.kind for mark in marks] == sorted(mark.kind for mark in marks)
    group = letters[0].head.fingerprint
    assert (await office.deaths(**span, group=group)).total >= 1
    with pytest.raises(ConfigError, match="`step` must be"):
        await office.deaths(step=timedelta(minutes=7))


def test_the_remote_office_is_one_of_its_protocol(client: Client) -> None:
    office: OfficeProtocol = client.office  # what the type checker checks

    assert isinstance(office, RemoteOffice)


async def test_the_audit_is_read_from_its_end_and_groups_are_counted(
    office: OfficeProtocol, letters: list[DeadLetter]
) -> None:
    for number in range(3):
        await office.letters.note([letters[0].id], f"note {number}", BY)
    await office.letters.review([letters[1].id], BY)

    latest = await office.latest_audit(AuditFilter(action="note"), limit=2)
    since = latest[-1].at + timedelta(days=1)

    assert [entry.detail for entry in latest] == ["note 2", "note 1"]
    assert [e.action for e in await office.latest_audit(limit=1)] == ["move"]
    assert await office.latest_audit(AuditFilter(since=since)) == []
    counts = await office.groups.counts()
    assert (counts.listed, counts.total, counts.statuses[GroupStatus.NEW]) == (1, 1, 1)
