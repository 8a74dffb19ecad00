import asyncio
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from client.serving import Served, beside, served
from deadletter.client import Client
from deadletter.client.client import Change
from deadletter.core.access import Identity, Role
from deadletter.core.campaign import CampaignState, Outcome, unsent
from deadletter.core.errors import ConfigError, Conflict, NotFound, QueryError, Refused
from deadletter.core.letter import AuditEntry, Changes, GroupStatus, State
from deadletter.office.groups import GroupPage
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.selection import ReplayPage
from deadletter.ports import QueueOptions
from office.making import make_letter, make_letters


async def test_letters_are_found_page_by_page(server: Served, client: Client) -> None:
    server.keep(*make_letters(12), make_letter(99, source="returns"))

    page = await client.letters.search("source:orders", limit=5)
    rest = await client.letters.search("source:orders", after=page.after)
    everything = [head.id async for head in client.letters.all()]
    some = [head.id async for head in client.letters.all("source:orders", limit=7)]

    assert (len(page.heads), len(rest.heads), rest.after) == (5, 7, None)
    assert (len(everything), len(set(everything)), len(some)) == (13, 13, 7)


async def test_a_letter_is_read_with_its_story_and_its_bytes(
    server: Served, client: Client
) -> None:
    letter = make_letter(
        body=bytes(range(256)), headers={"tenant": b"\xff\x00", "authorization": "x"}
    )
    server.keep(letter)

    view = await client.letters.get(letter.id[:8])
    story = await client.letters.timeline(letter.id)
    message = await client.letters.message(letter.id)

    assert view.head == letter.head
    assert "authorization: [redacted]" in view.message.headers
    assert message == letter.message
    assert [moment.kind for moment in story.moments][-1] == "died"


async def test_decisions_are_applied_and_audited(server: Served, client: Client) -> None:
    letters = make_letters(5)
    server.keep(*letters)
    ids = [letter.id for letter in letters]

    reviewed = await client.letters.review(ids[:2], reason="seen")
    noted = await client.letters.note("ask Bo", ids[:1])
    closed = await client.letters.close(query="is:reviewed")
    reopened = await client.letters.reopen(ids[:1])
    discarded = await client.letters.discard(query="is:pending", expect=4)
    restored = await client.letters.restore(ids)
    purged = await client.letters.purge(ids[4:], reason="a test")

    moved = [one.moved for one in (reviewed, noted, closed, reopened)]
    assert moved == [2, 1, 2, 1]
    assert (discarded.moved, restored.moved, purged.moved) == (4, 4, 1)
    assert restored.skipped == {"is closed": 1}
    acts = await client.audit(target=ids[0])
    assert [entry.action for entry in acts.entries][:3] == ["move", "note", "move"]
    assert acts.entries[0].reason == "seen"


async def test_an_edit_needs_the_letter_as_it_was_seen(server: Served, client: Client) -> None:
    letter = make_letter(body=b"broken", key="k")
    server.keep(letter)
    changes = Changes(body=b"mended\xff", headers=(("a", b"\x00"),), key=None)

    edited = await client.letters.edit(letter.id, changes, revision=0, reason="typo")

    assert edited.head.revision == 1
    assert [one.part for one in edited.differences] == ["key", "headers", "body"]
    now = await client.letters.message(letter.id)
    assert (now.body, now.headers, now.key) == (b"mended\xff", (("a", b"\x00"),), None)
    assert await client.letters.original(letter.id) == letter.message
    with pytest.raises(Conflict, match="revision 1"):
        await client.letters.edit(letter.id, changes, revision=0)


async def test_groups_are_listed_and_stand_as_somebody_says(server: Served, client: Client) -> None:
    server.keep(*make_letters(3))

    (line,) = (await client.groups.list()).groups
    said = await client.groups.set_status(
        line.fingerprint, GroupStatus.RESOLVED, version="1.8", reason="fixed"
    )

    assert line.open == 3
    assert (said.status, said.version) == (GroupStatus.RESOLVED, "1.8")
    assert (await client.groups.get(line.fingerprint)).note == "fixed"
    assert await client.groups.list(status=GroupStatus.MUTED) == GroupPage(())


async def test_groups_tell_what_their_letters_share(server: Served, client: Client) -> None:
    letters = [make_letter(n, fingerprint="1-a", version=f"1.{n}") for n in range(3)]
    server.keep(*letters)

    variants = await client.groups.variants("1-a")
    older = await client.letters.search("version:<1.2")

    assert (variants.group, variants.looked_at, variants.letters) == ("1-a", 3, 3)
    assert "consumer" in {trait.field for trait in variants.traits}
    assert len(older.heads) == 2
    assert await client.letters.count("version:<1.2") == LetterCount(2)
    assert await client.letters.count() == LetterCount(3)


async def test_groups_and_replays_go_on_where_a_page_ended(server: Served, client: Client) -> None:
    letters = [make_letter(n, fingerprint=f"1-{n}") for n in range(3)]
    server.keep(*letters)
    plans = [await client.replays.plan([one.id]) for one in letters]

    groups = await client.groups.list(limit=2)
    others = await client.groups.list(limit=2, after=groups.after)
    replays = await client.replays.latest(limit=2)
    older = await client.replays.latest(limit=2, after=replays.after)

    both = [line.fingerprint for line in (*groups.groups, *others.groups)]
    assert sorted(both) == ["1-0", "1-1", "1-2"]
    assert [one.id for one in (*replays.replays, *older.replays)] == [
        plan.replay.id for plan in reversed(plans)
    ]
    assert (others.after, older.after) == (None, None)


async def test_verdicts_of_a_plan_go_on_where_a_page_ended(server: Served, client: Client) -> None:
    server.keep(*make_letters(5))

    first = await client.replays.judge(query="*", size=3)
    rest = await client.replays.judge(query="*", size=3, after=first.after or 0)

    assert (len(first.letters), first.after) == (3, 3)
    assert (len(rest.letters), rest.after) == (2, None)
    assert len({one.letter_id for one in (*first.letters, *rest.letters)}) == 5


async def test_a_replay_is_planned_started_and_sent_by_the_server(
    server: Served, client: Client
) -> None:
    server.keep(*make_letters(3))

    planned = await client.replays.plan(query="*", expect=3, reason="fixed")
    before = await client.replays.get(planned.replay.id)
    await client.replays.start(planned.replay.id, expect=3)
    over = await client.replays.watch(planned.replay.id, lambda now: not unsent(now))

    assert (planned.sendable, before.state) == (3, CampaignState.PLANNED)
    assert over.counts == {Outcome.SENT: 3}
    assert await client.replays.latest() == ReplayPage((over,))
    report = await client.replays.report(planned.replay.id)
    assert [item.outcome for item in report.items] == [Outcome.SENT] * 3
    async with beside(server) as engine:
        (queue,) = await engine.broker.queues()
        assert queue.ready == 3


async def test_a_replay_can_be_paused_resumed_and_cancelled(server: Served, client: Client) -> None:
    server.keep(*make_letters(3))
    planned = await client.replays.plan(query="*", expect=3, rate=0.001)
    name = planned.replay.id

    await client.replays.start(name)
    paused = await client.replays.pause(name, reason="wait")
    resumed = await client.replays.resume(name)
    cancelled = await client.replays.cancel(name)

    states = [one.state for one in (paused, resumed, cancelled)]
    assert states == [CampaignState.PAUSED, CampaignState.RUNNING, CampaignState.CANCELLED]


async def test_mailboxes_are_made_changed_and_deleted(client: Client) -> None:
    odd = "orders/eu west?#%"
    await client.queues.create(QueueOptions(name="dead"))
    await client.queues.create(QueueOptions(name="orders", dead_queue="dead"))
    await client.queues.update("orders", {"max_attempts": 3, "dead_queue": None})

    queues = await client.queues.list()
    gone = await client.queues.delete("dead", reason="empty")

    assert [queue.options.name for queue in queues] == ["dead", "orders"]
    assert (await client.queues.get("orders")).options.max_attempts == 3
    assert (gone.mailbox, gone.purged) == ("dead", 0)
    with pytest.raises(NotFound):
        await client.queues.get(odd)


async def test_an_export_can_be_imported_elsewhere(
    server: Served, client: Client, tmp_path: Path
) -> None:
    letter = make_letter(body=bytes(range(256)))
    server.keep(letter, *make_letters(3, source="more"))
    await client.letters.edit(letter.id, Changes(body=b"mended"), revision=0)
    file = io.BytesIO()

    written = await client.export("", file, reason="moving")

    assert written == 4
    acts = (await client.audit(target="letters.jsonl")).entries
    assert [act.reason for act in acts] == ["moving"]
    with served(f"sqlite:///{tmp_path}/other.db") as other:
        async with Client(other.url) as there:
            taken = await there.import_(file.getvalue(), archive="a.jsonl")
            again = await there.import_(file.getvalue(), archive="a.jsonl")
            original = await there.letters.original(letter.id)
    assert (taken.added, again.known) == (4, 4)
    assert original == letter.message


async def test_stats_and_audit_are_typed(server: Served, client: Client) -> None:
    server.keep(*make_letters(2))

    stats = await client.stats()

    assert stats.sources == {"orders": {State.PENDING: 2}}
    assert (await client.audit()).entries == ()


async def test_events_tell_what_others_do(server: Served, client: Client) -> None:
    letter = make_letter()
    server.keep(letter)
    events = client.events(after=0)

    async with asyncio.timeout(20):
        heard = asyncio.create_task(_until_act(events))
        await client.letters.review([letter.id])
        act = await heard
    await events.aclose()

    assert (act.action, act.target) == ("move", letter.id)


async def _until_act(events: AsyncIterator[Change]) -> AuditEntry:
    async for event in events:
        if isinstance(event, AuditEntry):
            return event
    raise AssertionError("the events ended")


async def test_errors_are_those_of_the_core_in_the_servers_words(
    server: Served, client: Client
) -> None:
    with pytest.raises(QueryError) as query:
        await client.letters.search("is:pending age:<banana")
    with pytest.raises(NotFound, match="there is no letter"):
        await client.letters.get("aaaaaaaa")
    with pytest.raises(ConfigError, match="expect"):
        await client.letters.discard(query="*")
    with pytest.raises(ConfigError):
        await client.letters.search(limit=0)
    with pytest.raises(NotFound):
        await client.replays.get("nothing")

    assert query.value.query == "is:pending age:<banana"
    assert query.value.at == 16


async def test_missing_or_insufficient_tokens_are_rejected(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/office.db", access="on") as server:
        letter, other = make_letter(1), make_letter(2, source="secret")
        server.keep(letter, other)
        reader = server.token(Role.READER, "orders")
        async with Client(server.url) as nobody, Client(server.url, token=reader) as one:
            with pytest.raises(Refused, match="a valid token"):
                await nobody.stats()
            with pytest.raises(Refused, match="operator"):
                await one.letters.review([letter.id])
            with pytest.raises(NotFound):
                await one.letters.get(other.id)
            assert [head.id async for head in one.letters.all()] == [letter.id]


async def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/office.db", access="on") as server:
        root = server.token(Role.ADMIN, name="root")
        async with Client(server.url, token=root) as client:
            to = Identity(name="ci", role=Role.OPERATOR, sources=("orders",))
            end = datetime.now(UTC) + timedelta(days=3)
            made = await client.tokens.issue(to, expires_at=end, reason="new")
            listed = {one.name: one for one in await client.tokens.list()}
            async with Client(server.url, token=made.token) as ci:
                assert (await ci.letters.search()).heads == ()
                await client.tokens.revoke(made.id, reason="left")
                with pytest.raises(Refused):
                    await ci.letters.search()
            with pytest.raises(NotFound, match=made.id):
                await client.tokens.revoke(made.id)
            acts = (await client.audit(target=f"token:{made.id}")).entries

    assert listed["ci"].id == made.id
    assert (made.role, made.sources, made.expires_at) == (to.role, to.sources, end)
    assert [(act.actor, act.reason) for act in acts] == [("root", "new"), ("root", "left")]


async def test_a_letter_view_holds_all_that_a_letter_has(server: Served, client: Client) -> None:
    letter = structs.replace(make_letter(state=State.QUARANTINED), position="7", route="dead")
    server.keep(letter)

    view = await client.letters.get(letter.id)

    assert (view.position, view.route) == ("7", "dead")
    assert list(view.attempts) == letter.story()


async def test_the_office_is_checked_and_verified_through_the_server(
    server: Served, client: Client
) -> None:
    server.keep(make_letter())

    checks = await client.upkeep.checks()
    run = await client.upkeep.verify()
    due = await client.upkeep.retention()

    assert "reachable" in {check.name for check in checks}
    assert run.found is not None
    assert (run.state, run.found.findings, run.found.letters) == ("done", (), 1)
    assert (await client.upkeep.verification()) == run
    assert (due.due, due.letters) == (0, 1)
    assert (await client.upkeep.run_retention(expect=0)).actor == "local"
    with pytest.raises(Conflict, match=r"alerts\.targets"):
        await client.upkeep.test_alerts()
    with pytest.raises(Conflict, match="access is off"):
        await client.sessions.list()
