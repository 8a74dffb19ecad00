"""The office in numbers: what lies there, what arrives, what goes back."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.errors import Unavailable
from deadletter.core.letter import By, GroupStatus, Standing, State
from deadletter.observe.office_metrics import OfficeMetrics
from deadletter.office.replay import Replay
from deadletter.office.verify import mismatch
from deadletter.ports import Engine, LetterStore, Move, QueueOptions, ReplaySettled
from deadletter.testing.fakes import FakeClock, SeededDice
from office.making import BY, NOW, make_letter


@pytest.fixture
def office(
    registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> OfficeMetrics:
    return OfficeMetrics(registry, store, office_clock)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


async def test_letters_are_gauged_and_fall_to_zero_when_drained(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore
) -> None:
    letters = [make_letter(n) for n in range(3)]
    await store.keep(letters)
    await office.refresh()
    full = value(registry, "dlq_messages", state="pending", source="orders")

    await store.move(
        Move(
            ids=tuple(letter.id for letter in letters),
            old=frozenset({State.PENDING}),
            new=State.DISCARDED,
        ),
        BY,
    )
    await store.purge([letter.id for letter in letters], BY)
    await office.refresh()

    assert full == 3
    assert value(registry, "dlq_messages", state="pending", source="orders") == 0


async def test_depth_counts_what_needs_somebody_under_both_names_r1_47_r3_80(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore
) -> None:
    letters = [make_letter(n) for n in range(4)]
    await store.keep(letters)
    closed = Move(ids=(letters[0].id,), old=frozenset({State.PENDING}), new=State.CLOSED)
    await store.move(closed, BY)

    await office.refresh()

    assert value(registry, "dlq_queue_depth", mailbox="orders") == 3
    assert value(registry, "pipestream_dlq_depth", node_id="orders") == 3


async def test_the_depth_of_a_node_goes_by_its_own_id_r1_47(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore
) -> None:
    node = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"
    await store.keep([make_letter(1, source=f"prod.{node}")])
    await store.keep([make_letter(2, source=f"staging.{node}")])

    await office.refresh()

    assert value(registry, "pipestream_dlq_depth", node_id=node) == 2
    assert value(registry, "dlq_queue_depth", mailbox=f"prod.{node}") == 1


async def test_the_longest_wait_for_an_outcome_shows_by_source(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    letter = make_letter()
    await store.keep([letter])
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(campaign, [letter.id])
    (taken,) = await store.take_replay("c-1", limit=2)
    office_clock.advance(100)
    await office.refresh()
    waiting = value(registry, "dlq_oldest_unsettled_age_seconds", source="orders")

    news = ReplaySettled(letter.id, taken.generation, Outcome.CONFIRMED)
    await store.settle_replays([news])
    office_clock.advance(100)
    await office.refresh()

    assert waiting == 100
    assert value(registry, "dlq_oldest_unsettled_age_seconds", source="orders") == 0


async def test_the_oldest_unreviewed_letter_shows_its_age_by_source(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep(
        [
            make_letter(1, died=timedelta(hours=50)),
            make_letter(2, died=timedelta(hours=2)),
            make_letter(3, source="mails", died=timedelta(minutes=7)),
        ]
    )

    await office.refresh()
    before = value(registry, "dlq_oldest_unreviewed_age_seconds", source="orders")
    mails = value(registry, "dlq_oldest_unreviewed_age_seconds", source="mails")
    oldest = Move(ids=(make_letter(1).id,), old=frozenset({State.PENDING}), new=State.REVIEWED)
    await store.move(oldest, BY)
    office_clock.advance(60)  # it is not searched for with every scrape
    await office.refresh()

    assert (before, mails) == (50 * 3600, 7 * 60)
    after = value(registry, "dlq_oldest_unreviewed_age_seconds", source="orders")
    assert after == 2 * 3600 + 60


async def test_groups_are_counted_by_how_they_stand(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore
) -> None:
    await store.keep([make_letter(1), make_letter(2, error_type="ValueError")])
    [group, *_] = await store.groups()
    await store.set_group(group.fingerprint, Standing(status=GroupStatus.MUTED), BY)

    await office.refresh()

    assert value(registry, "dlq_groups", status="new") == 1
    assert value(registry, "dlq_groups", status="muted") == 1
    assert value(registry, "dlq_groups", status="resolved") == 0


async def test_arrivals_show_even_if_a_consumer_empties_the_queue_at_once(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    await office.refresh()
    for number in range(5):  # kept and purged between two looks
        letter = make_letter(number, died=timedelta(), now=office_clock.now())
        await store.keep([letter])
        await store.purge([letter.id], BY)

    await office.refresh()
    first = value(registry, "dlq_arrivals_total", source="orders")
    await office.refresh()

    # A series that begins with its first rise is not seen to rise.
    assert first == 0
    assert value(registry, "dlq_arrivals_total", source="orders") == 5
    assert value(registry, "dlq_messages", state="pending", source="orders") == 0
    assert value(registry, "dlq_new_groups_total") == 1


async def test_deaths_in_overflow_groups_are_counted(
    registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    store.group_limit.per_day = 2
    await store.keep([make_letter(n, fingerprint=f"1-{n}") for n in range(3)])
    office = OfficeMetrics(registry, store, office_clock)
    await office.refresh()
    before = value(registry, "dlq_overflow_arrivals_total", source="orders")

    await store.keep([make_letter(n, fingerprint=f"1-{n}") for n in range(3, 8)])
    await office.refresh()

    assert before == 0
    assert value(registry, "dlq_overflow_arrivals_total", source="orders") == 5


async def test_existing_letters_do_not_count_as_arrivals(
    registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    await store.keep([make_letter(n) for n in range(7)])
    office = OfficeMetrics(registry, store, office_clock)
    await office.refresh()
    old = value(registry, "dlq_arrivals_total", source="orders")

    await store.keep([make_letter(99)])
    await office.refresh()

    assert old == 0
    assert value(registry, "dlq_arrivals_total", source="orders") == 1
    assert value(registry, "dlq_new_groups_total") == 0


async def test_replays_are_counted_by_what_became_of_them(
    office: OfficeMetrics,
    registry: CollectorRegistry,
    store: LetterStore,
    engine: Engine,
    office_clock: FakeClock,
) -> None:
    await engine.broker.create(QueueOptions(name="orders"))
    letters = [make_letter(n) for n in range(4)]
    await store.keep(letters)
    await office.refresh()
    replay = Replay(store, engine.broker, office_clock, SeededDice(3), engine.ledger)
    campaign = await replay.start("source:orders", By("anna", "fixed"))
    office_clock.advance(2)
    await replay.run(campaign.id)
    await office.refresh()
    rate = value(registry, "dlq_replay_rate")
    unsettled = value(registry, "dlq_replay_unsettled")
    await store.settle_replays(
        [ReplaySettled(letter.id, 1, Outcome.CONFIRMED) for letter in letters[:3]]
    )

    await office.refresh()

    back = {"campaign_kind": "back"}
    name = "dlq_replay_messages_total"
    assert (rate, unsettled) == (2, 4)
    assert value(registry, name, **back, outcome="confirmed") == 3
    assert value(registry, name, **back, outcome="failed") == 0
    assert value(registry, "dlq_replay_unsettled") == 1
    assert value(registry, "dlq_replay_campaigns", state="running") == 1


async def test_an_office_that_is_away_is_down_and_its_numbers_stay(
    registry: CollectorRegistry,
    store: LetterStore,
    office_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store.keep([make_letter(1)])
    office = OfficeMetrics(registry, store, office_clock)
    await office.refresh()
    up = value(registry, "dlq_office_up")

    async def away(**_: Any) -> Sequence[Any]:
        raise Unavailable("no route")

    monkeypatch.setattr(store, "groups", away)
    await office.refresh()
    down = value(registry, "dlq_office_up")
    monkeypatch.undo()
    await office.refresh()

    assert (up, down) == (1, 0)
    assert value(registry, "dlq_office_up") == 1
    assert value(registry, "dlq_messages", state="pending", source="orders") == 1


async def test_reconciliation_mismatches_are_exported(
    registry: CollectorRegistry, store: LetterStore, engine: Engine, office_clock: FakeClock
) -> None:
    missing = 0

    async def count() -> int:
        return missing + await mismatch(engine.broker)

    office = OfficeMetrics(registry, store, office_clock, mismatch=count)
    await engine.broker.create(QueueOptions(name="orders"))
    await engine.broker.sink("orders").send([make_letter(1).message])
    await office.refresh()
    well = value(registry, "dlq_reconcile_mismatch")
    missing = 3
    await office.refresh()

    assert well == 0
    assert value(registry, "dlq_reconcile_mismatch") == 3


async def test_unknown_reconciliation_is_exported_as_nan(
    office: OfficeMetrics, registry: CollectorRegistry
) -> None:
    await office.refresh()

    said = value(registry, "dlq_reconcile_mismatch")
    assert said is not None
    assert math.isnan(said)


async def test_countless_sources_make_few_series(
    office: OfficeMetrics, registry: CollectorRegistry, store: LetterStore
) -> None:
    await store.keep([make_letter(n, source=f"box-{n}") for n in range(300)])

    await office.refresh()
    await office.refresh()

    lines = generate_latest(registry).splitlines()
    assert len([line for line in lines if line[:1] != b"#"]) < 4_000
    assert value(registry, "dlq_messages", state="pending", source="other") == 100
