"""The service's own alerts: of what arrives, once, whoever looks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.events import Alerted, AlertFailed, Event
from deadletter.core.letter import GroupStatus, Standing, State
from deadletter.observe import alerts as alerting
from deadletter.observe.alerts import Alerting
from deadletter.ports import Engine, LetterStore, Move
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_filing import a_window
from observe.receivers import Hook, PostOffice, listening
from office.making import BY, NOW, make_letter

Make = Callable[..., Alerting]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    async with listening(hook, "http"):
        yield hook


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def make(
    hook: Hook, engine: Engine, store: LetterStore, office_clock: FakeClock, events: list[Event]
) -> Make:
    def make(*, with_ledger: bool = True, **more: Any) -> Alerting:
        target = AlertTarget(kind=TargetKind.WEBHOOK, to=hook.url)
        given = {"targets": (target,), **more}
        return Alerting(
            Alerts(**given),
            store,
            engine.ledger if with_ledger else None,
            clock=office_clock,
            observe=events.append,
        )

    return make


def told(hook: Hook) -> list[dict[str, Any]]:
    return [alert for body in hook.bodies for alert in msgspec.json.decode(body)["data"]["alerts"]]


def kinds(hook: Hook) -> list[str]:
    return [alert["kind"] for alert in told(hook)]


async def test_a_new_group_is_told_once_with_what_one_needs(
    make: Make, hook: Hook, store: LetterStore, events: list[Event]
) -> None:
    await store.keep([make_letter(n) for n in range(3)])
    watch = make()

    await watch.look()
    await watch.look()

    [alert] = told(hook)
    assert alert["kind"] == "new-group"
    assert alert["count"] == 3
    assert alert["source"] == "orders"
    assert alert["error_type"] == "builtins.TimeoutError"
    assert "link" not in alert
    assert {"first_seen", "last_seen"} <= set(alert)
    assert events == [Alerted(mailbox="", target="webhook", alerts=1)]


async def test_a_mailbox_that_is_held_back_is_told_once(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    watch = make()
    for number in (1, 2, 3):  # as many workers
        now = office_clock.now()
        window = replace(a_window(number), opened_at=now, seen_at=now)
        await store.save_window(window)
        office_clock.advance(1)
        await watch.look()
    office_clock.advance(2 * 3600)
    await store.save_window(replace(window, seen_at=office_clock.now()))
    await watch.look()

    [alert] = told(hook)
    assert (alert["kind"], alert["source"]) == ("mailbox-held-back", "orders")
    assert "(systemic)" in alert["text"]
    assert "KeyError" not in alert["id"]


async def test_nothing_of_a_message_is_told(make: Make, hook: Hook, store: LetterStore) -> None:
    letter = make_letter(
        1,
        body=b"BODY-SECRET",
        headers={"h": "HEADER-SECRET"},
        error_text="TEXT-SECRET",
        stack="STACK-SECRET",
        died=timedelta(days=3),
    )
    await store.keep([letter])

    await make(growing=1, growing_within=10 * 86_400).look()

    assert len(told(hook)) == 3
    assert all(b"SECRET" not in body for body in hook.bodies)


async def test_two_servers_tell_once(make: Make, hook: Hook, store: LetterStore) -> None:
    await store.keep([make_letter(n, error_type=f"E{n}") for n in range(5)])
    servers = [make() for _ in range(4)]

    await asyncio.gather(*(server.look() for server in servers))
    await make().look()  # one that was started again

    assert sorted(kinds(hook)) == ["new-group"] * 5


async def test_without_a_ledger_one_server_still_tells_once(
    make: Make, hook: Hook, store: LetterStore
) -> None:
    await store.keep([make_letter(1)])
    watch = make(with_ledger=False)

    await watch.look()
    await watch.look()

    assert kinds(hook) == ["new-group"]


async def test_letters_that_were_taken_away_at_once_are_told_of(
    make: Make, hook: Hook, store: LetterStore
) -> None:
    letter = make_letter(1)
    await store.keep([letter])
    await store.purge([letter.id], BY)

    await make().look()

    assert kinds(hook) == ["new-group"]


async def test_a_group_that_grows_is_told_of_and_again_if_it_goes_on(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep([make_letter(0, died=timedelta(days=2))])
    watch = make(new_groups=False, growing=10, growing_within=300, unreviewed=0, again=3600)
    await watch.look()
    for turn in range(3):  # 4 letters a minute: too few at first
        office_clock.advance(60)
        await store.keep([make_letter(10 * turn + n + 1) for n in range(4)])
        await watch.look()
    first = list(kinds(hook))
    await watch.look()
    soon = list(kinds(hook))
    office_clock.advance(3600)
    await store.keep([make_letter(1000 + n) for n in range(10)])
    await watch.look()

    assert first == ["growing-group"]
    assert told(hook)[0]["count"] == 12
    assert soon == first
    assert kinds(hook) == ["growing-group"] * 2


async def test_growth_that_is_over_is_forgotten(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep([make_letter(0, died=timedelta(days=2))])
    watch = make(new_groups=False, growing=10, growing_within=300, unreviewed=0)
    await watch.look()
    for turn in range(5):
        office_clock.advance(200)
        await store.keep([make_letter(10 * turn + n + 1) for n in range(4)])
        await watch.look()

    assert kinds(hook) == []


async def test_a_group_that_comes_back_is_told_of(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep([make_letter(1)])
    watch = make()
    await watch.look()
    [group] = await store.groups()
    resolved = Standing(status=GroupStatus.RESOLVED, since=office_clock.now())
    await store.set_group(group.fingerprint, resolved, BY)
    office_clock.advance(60)

    await store.keep([make_letter(2, died=timedelta(), now=office_clock.now())])
    await watch.look()
    await watch.look()

    assert kinds(hook) == ["new-group", "regressed-group"]


async def test_a_flood_is_told_and_hides_no_new_group(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    store.group_limit.per_day = 60
    real = make_letter(1, error_type="KeyError", died=timedelta(minutes=9))
    await store.keep([real, *(make_letter(n, fingerprint=f"1-{n}") for n in range(99))])
    watch = make()

    await watch.look()
    await watch.look()

    assert "KeyError" in {alert["error_type"] for alert in told(hook)}
    assert kinds(hook).count("overflow-group") == 1
    [overflow] = [one for one in told(hook) if one["kind"] == "overflow-group"]
    assert overflow["count"] == 39
    assert "too many different error texts: 39 letters" in overflow["text"]


@pytest.mark.parametrize("status", [GroupStatus.MUTED, GroupStatus.SNOOZED])
async def test_muted_and_snoozed_groups_raise_no_alerts(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock, status: GroupStatus
) -> None:
    await store.keep([make_letter(n, died=timedelta(days=3)) for n in range(200)])
    [group] = await store.groups()
    until = office_clock.now() + timedelta(days=1)
    hush = Standing(status=status, until=until if status is GroupStatus.SNOOZED else None)
    await store.set_group(group.fingerprint, hush, BY)

    await make(growing_within=10 * 86_400).look()

    assert told(hook) == []


async def test_letters_nobody_looked_at_are_told_of_by_source(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    old = [make_letter(n, died=timedelta(days=2, hours=n)) for n in range(3)]
    await store.keep(old)
    await store.keep([make_letter(9, source="mails", died=timedelta(hours=2))])
    watch = make(new_groups=False, growing=0, unreviewed=86_400, again=3600)

    await watch.look()
    office_clock.advance(600)
    await watch.look()
    once = list(kinds(hook))
    office_clock.advance(3600)
    await watch.look()
    twice = list(kinds(hook))
    ids = tuple(letter.id for letter in old)
    looked_at = Move(ids=ids, old=frozenset({State.PENDING}), new=State.REVIEWED)
    await store.move(looked_at, BY)
    office_clock.advance(3600)
    await watch.look()

    assert once == ["unreviewed-letters"]
    assert twice == ["unreviewed-letters"] * 2
    assert kinds(hook) == twice
    alert = told(hook)[0]
    assert (alert["source"], alert["count"]) == ("orders", 3)
    assert alert["first_seen"] == "2029-12-30T10:00:00Z"
    assert alert["text"] == ("3 letters of orders waited for more than 1 day and nobody has looked")


async def test_undelivered_alerts_are_sent_later_with_the_same_id(
    make: Make, hook: Hook, store: LetterStore, events: list[Event]
) -> None:
    await store.keep([make_letter(1)])
    hook.answers = ["500 Oops"] * 3
    watch = make()

    await watch.look()
    failed = list(events)
    await watch.look()
    await watch.look()

    assert failed == [
        AlertFailed(mailbox="", target="webhook", alerts=1, text="127.0.0.1: answered 500")
    ]
    assert events[1:] == [Alerted(mailbox="", target="webhook", alerts=1)]
    assert len(hook.bodies) == 4  # three tries, and the one that was taken
    assert len({headers["webhook-id"] for headers in hook.headers}) == 1


async def test_growth_is_told_later_even_if_it_is_over_by_then(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep([make_letter(n) for n in range(20)])
    hook.answers = ["500 Oops"] * 3
    watch = make(new_groups=False, growing=10, unreviewed=0)
    await watch.look()
    hook.bodies.clear()

    office_clock.advance(1_000)
    await watch.look()

    assert kinds(hook) == ["growing-group"]


async def test_another_server_tells_what_one_could_not(
    make: Make, hook: Hook, store: LetterStore
) -> None:
    await store.keep([make_letter(1)])
    hook.answers = ["500 Oops"] * 3
    await make().look()
    hook.bodies.clear()

    await make().look()

    assert kinds(hook) == ["new-group"]


async def test_one_target_that_is_down_does_not_repeat_what_others_were_told(
    make: Make, hook: Hook, store: LetterStore
) -> None:
    post = PostOffice(refuse=True)
    async with listening(post, "smtp"):
        targets = (
            AlertTarget(kind=TargetKind.WEBHOOK, to=hook.url),
            AlertTarget(kind=TargetKind.EMAIL, to="a@shop.test", server=post.url),
        )
        watch = make(targets=targets)
        await store.keep([make_letter(1)])
        await watch.look()
        post.refuse = False
        await watch.look()

    assert kinds(hook) == ["new-group"]
    assert len(post.mails) == 1


async def test_a_flood_of_causes_is_one_notice(make: Make, hook: Hook, store: LetterStore) -> None:
    await store.keep([make_letter(n, error_type=f"E{n}") for n in range(150)])

    await make().look()
    await make().look()

    [body] = hook.bodies
    data = msgspec.json.decode(body)["data"]
    assert (len(data["alerts"]), data["more"]) == (20, 130)


async def test_an_office_that_is_away_says_so_and_costs_nothing(
    make: Make, hook: Hook, store: LetterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(**_: Any) -> Any:
        raise Unavailable("no route")

    watch = make()
    await store.keep([make_letter(1)])
    monkeypatch.setattr(store, "groups", away)
    with pytest.raises(Unavailable):
        await watch.look()
    monkeypatch.undo()

    await watch.look()

    assert kinds(hook) == ["new-group"]


async def test_letters_that_wait_too_long_for_an_outcome_are_told(
    make: Make, hook: Hook, store: LetterStore, office_clock: FakeClock
) -> None:
    letters = [make_letter(n) for n in range(3)]
    await store.keep(letters)
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(campaign, [letter.id for letter in letters])
    await store.take_replay("c-1", limit=2)
    watch = make(new_groups=False, growing=0, unreviewed=0, unsettled=600, again=3600)

    await watch.look()
    early = kinds(hook)
    office_clock.advance(660)
    await watch.look()
    await watch.look()

    assert early == []
    [alert] = told(hook)
    assert (alert["kind"], alert["count"]) == ("unsettled-letters", 2)
    assert "2 letters of orders sent back without an outcome" in alert["text"]
    assert "for more than 10 minutes: is a worker running?" in alert["text"]
