"""What needs somebody, ranked: every kind, its limits, its words."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.alerts import Alerts
from deadletter.core.brake import BrakeKind, BrakeWindow, Release, WindowState
from deadletter.core.campaign import Campaign, CampaignState, Outcome, Unsettled
from deadletter.core.letter import Group, GroupStatus, Standing, State
from deadletter.office.mailboxes import Outage
from deadletter.office.triage.attention import MOST, NeedKind, Problem, Scene, rank_needs
from deadletter.ports import QueueInfo, QueueOptions
from office.making import NOW, make_letter

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def group(status: GroupStatus = GroupStatus.NEW, *, open: int = 3, **more: Any) -> Group:
    given: dict[str, Any] = {
        "fingerprint": "1-a",
        "source": "orders",
        "error_type": "builtins.KeyError",
        "text": "'vat_rate'",
        "first_seen": NOW - HOUR,
        "last_seen": NOW,
        "counts": {State.PENDING: open},
        "total": open,
        "standing": Standing(status=status, since=NOW - HOUR, version="1.8"),
    }
    return Group(**given | more)


def campaign(state: CampaignState, age: timedelta = HOUR, **more: Any) -> Campaign:
    given: dict[str, Any] = {
        "id": "c-1",
        "query": "error:KeyError",
        "created_at": NOW - age,
        "actor": "anna",
        "reason": "the bank is back",
        "state": state,
        "counts": {Outcome.PLANNED: 12},
    }
    return Campaign(**given | more)


def outage(state: WindowState = WindowState.OPEN, release: Release | None = None) -> Outage:
    window = BrakeWindow(
        id="w-1",
        mailbox="mails",
        kind=BrakeKind.SYSTEMIC,
        cause="KeyError",
        version="1.8",
        text="everything fails",
        opened_at=NOW - 12 * timedelta(minutes=1),
        seen_at=NOW,
        held=14,
        attempts=3,
        message_ids=(),
        release=release,
    )
    return Outage(state=state, window=window)


def queue(name: str = "orders", **numbers: Any) -> QueueInfo:
    given = {"ready": 0, "delayed": 0, "claimed": 0, "suspects": 0, "oldest_at": None}
    return QueueInfo(options=QueueOptions(name=name), **given | numbers)


PARTS: dict[NeedKind, dict[str, Any]] = {
    NeedKind.REGRESSED: {"groups": [group(GroupStatus.REGRESSED)]},
    NeedKind.HALTED: {
        "paused": [campaign(CampaignState.PAUSED)],
        "halted": {"c-1": "stopped by itself: 3 of the first 10 failed again, where 10% may"},
    },
    NeedKind.BRAKE: {"outages": [outage()]},
    NeedKind.LOOP: {"problems": [Problem("replays", "no answer")]},
    NeedKind.INTAKE: {"problems": [Problem("old", "no permission", is_intake=True)]},
    NeedKind.APPROVAL: {"approvals": [campaign(CampaignState.PLANNED)]},
    NeedKind.NEW: {"groups": [group()]},
    NeedKind.GROWING: {"groups": [group(GroupStatus.ONGOING)], "grown": {"1-a": 100}},
    NeedKind.SUSPECTS: {"queues": [queue(suspects=3)]},
    NeedKind.QUARANTINED: {"counts": {"orders": {State.QUARANTINED: 2}}},
    NeedKind.UNREVIEWED: {"unreviewed": [make_letter(died=2 * DAY).head]},
    NeedKind.EXPIRING: {"planned": [campaign(CampaignState.PLANNED, 6.5 * DAY)]},
    NeedKind.UNSETTLED: {
        "unsettled": [Unsettled(source="orders", letters=2, since=NOW - 2 * HOUR)]
    },
    NeedKind.UNWORKED: {"queues": [queue(ready=2, oldest_at=NOW - 2 * HOUR)]},
}
TEXTS = {
    NeedKind.REGRESSED: "KeyError 'vat_rate' in orders was resolved in 1.8 and fails again: 3 open",
    NeedKind.HALTED: "The replay of error:KeyError stopped by itself: 3 of the first 10 failed"
    " again, where 10% may",
    NeedKind.BRAKE: "mails has been stopped for 12 min (systemic): everything fails",
    NeedKind.LOOP: "replays: no answer",
    NeedKind.INTAKE: "The intake old: no permission",
    NeedKind.APPROVAL: "anna wants to send 12 letters back: the bank is back",
    NeedKind.NEW: "KeyError 'vat_rate' in orders is new: 3 open",
    NeedKind.GROWING: "KeyError 'vat_rate' in orders grows: 100 deaths within 5 min",
    NeedKind.SUSPECTS: "3 suspects of lost workers run alone in orders: see why the worker died",
    NeedKind.QUARANTINED: "2 letters were replayed too often in orders, and wait for a decision",
    NeedKind.UNREVIEWED: "1 letter of orders has waited for a review, the oldest for 2 d",
    NeedKind.EXPIRING: "The replay of error:KeyError that anna planned is cancelled in 12 h"
    " unless somebody starts it",
    NeedKind.UNSETTLED: "2 letters wait for the outcome of a replay in orders, the oldest for 2 h",
    NeedKind.UNWORKED: "Is a worker running for orders? 2 messages are ready, and no worker holds"
    " any; the oldest was sent 2 h ago",
}


@pytest.mark.parametrize("kind", NeedKind)
def test_each_kind_has_one_sentence_and_a_target(kind: NeedKind) -> None:
    (need,) = rank_needs(Scene(**PARTS[kind]), NOW)

    assert (need.kind, need.text) == (kind, TEXTS[kind])
    targets = {
        NeedKind.BRAKE: "mails",
        NeedKind.LOOP: "replays",
        NeedKind.INTAKE: "old",
        NeedKind.QUARANTINED: "is:quarantined source:orders",
        NeedKind.UNREVIEWED: "is:pending source:orders",
        NeedKind.UNSETTLED: "is:replaying source:orders",
        NeedKind.SUSPECTS: "orders",
        NeedKind.UNWORKED: "orders",
        NeedKind.HALTED: "c-1",
        NeedKind.APPROVAL: "c-1",
        NeedKind.EXPIRING: "c-1",
    }
    assert need.target == targets.get(kind, "1-a")
    assert need.is_query == (":" in need.target)


def test_everything_together_is_in_the_order_of_the_kinds() -> None:
    scene: dict[str, Any] = {}
    for parts in PARTS.values():
        for name, value in parts.items():
            known = scene.get(name)
            if isinstance(value, dict):
                scene[name] = {**(known or {}), **value}
            else:
                scene[name] = [*(known or []), *value]
    scene["groups"] = [group(GroupStatus.REGRESSED), group(fingerprint="1-b")]
    scene["planned"] = [campaign(CampaignState.PLANNED, 6.5 * DAY, id="c-2")]

    found = rank_needs(Scene(**scene), NOW)

    assert [need.kind for need in found] == list(NeedKind)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"groups": [group(GroupStatus.ONGOING)]},
        {"groups": [group(open=0)]},
        {"groups": [group(GroupStatus.REGRESSED, open=0)]},
        {"groups": [group(GroupStatus.MUTED)], "grown": {"1-a": 1_000}},
        {"groups": [group(GroupStatus.ONGOING)], "grown": {"1-a": 99}},
        {"paused": [campaign(CampaignState.PAUSED)]},
        {"outages": [outage(WindowState.CLOSED)]},
        {"outages": [outage(release=Release(actor="bo", reason="", at=NOW))]},
        {"planned": [campaign(CampaignState.PLANNED, 5 * DAY)]},
        {"planned": [campaign(CampaignState.PLANNED, 8 * DAY)]},
        {"counts": {"orders": {State.PENDING: 5, State.QUARANTINED: 0}}},
        {"unsettled": [Unsettled(source="orders", letters=2, since=NOW - HOUR / 2)]},
        {"unsettled": [Unsettled(source="orders", letters=2)]},
        {"queues": [queue(ready=2, claimed=1, oldest_at=NOW - HOUR)]},
    ],
)
def test_what_is_well_is_not_listed(parts: dict[str, Any]) -> None:
    assert rank_needs(Scene(**parts), NOW) == []


def test_limits_are_those_of_the_alerts() -> None:
    few = Scene(groups=[group(GroupStatus.ONGOING)], grown={"1-a": 5}, **PARTS[NeedKind.UNSETTLED])

    found = rank_needs(few, NOW, Alerts(growing=5, unsettled=0))

    assert [need.kind for need in found] == [NeedKind.GROWING]
    assert rank_needs(few, NOW, Alerts(growing=0, unsettled=86_400)) == []


def test_of_one_kind_the_largest_comes_first_and_the_list_ends() -> None:
    groups = [group(open=n + 1, fingerprint=f"1-{n}") for n in range(2 * MOST)]

    found = rank_needs(Scene(groups=groups), NOW)

    assert [need.count for need in found] == list(range(2 * MOST, MOST, -1))


def test_a_plan_that_waits_for_approval_is_not_said_to_expire() -> None:
    plan = campaign(CampaignState.PLANNED, 6.5 * DAY)

    found = rank_needs(Scene(planned=[plan], approvals=[plan]), NOW)

    assert [need.kind for need in found] == [NeedKind.APPROVAL]


@given(st.text(max_size=300))
def test_odd_text_is_harmless_in_a_sentence(odd: str) -> None:
    scene = Scene(
        groups=[group(text=odd, source=odd, error_type=odd)],
        problems=[Problem(odd, odd)],
        queues=[queue(odd, suspects=1)],
        counts={odd: {State.QUARANTINED: 1}},
        paused=[campaign(CampaignState.PAUSED, query=odd)],
        halted={"c-1": odd},
    )

    for need in rank_needs(scene, NOW):
        assert not any(ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F for one in need.text)
        assert "\u202e" not in need.text
        assert len(need.text) < 5_000
