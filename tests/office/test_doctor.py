from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from deadletter.core.campaign import Campaign
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.message import Message
from deadletter.office import doctor
from deadletter.office.doctor import Check, Health, examine, worst
from deadletter.ports import Engine, LetterStore, LocksFile, QueueInfo, QueueOptions
from deadletter.testing.fakes import FakeClock
from office.making import NOW, make_letter


async def checked(engine: Engine, clock: FakeClock) -> dict[str, Check]:
    return {check.name: check for check in await examine(engine, clock, None)}


async def test_a_new_engine_is_well(engine: Engine, clock: FakeClock) -> None:
    checks = await checked(engine, clock)

    assert {name for name, check in checks.items() if check.health is Health.FAIL} == (set())
    assert {"versions", "durability", "reachable", "integrity", "clock"} <= set(checks)
    assert checks["integrity"].health is Health.OK


async def test_an_engine_that_forgets_is_named(engine: Engine, clock: FakeClock) -> None:
    durable = engine.features.engine == "sqlite"

    check = (await checked(engine, clock))["durability"]

    assert (check.health is Health.OK) == durable


async def test_locks_that_can_be_dropped_are_named(engine: Engine, clock: FakeClock) -> None:
    if not isinstance(engine, LocksFile):
        assert "file locks" not in await checked(engine, clock)
        return
    assert (await checked(engine, clock))["file locks"].health is Health.OK
    engine.lock_problem = "_ofd_locks.so was not built: install a C compiler"

    check = (await checked(engine, clock))["file locks"]

    assert check.health is Health.WARN
    assert "_ofd_locks.so was not built: install a C compiler." in check.text


async def test_old_unreviewed_letters_are_named(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([make_letter(1), make_letter(2, died=timedelta(days=9))])

    check = (await checked(engine, clock))["review"]

    assert check.health is Health.WARN
    assert check.text.startswith("1 pending letter")


async def test_letters_that_wait_long_for_an_outcome_are_named(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter(1)
    await store.keep([letter])
    assert (await checked(engine, clock))["replays"].health is Health.OK
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(campaign, [letter.id])
    await store.take_replay("c-1", limit=1)

    fresh = (await checked(engine, clock))["replays"]
    clock.advance(3 * 3600)
    stale = (await checked(engine, clock))["replays"]

    assert fresh == Check("replays", Health.OK, "1 letter waits for the outcome of a replay.")
    assert stale.health is Health.WARN
    assert "the oldest for 3h" in stale.text
    assert "--unconfirmed" in stale.text


async def test_mailboxes_without_a_worker_are_named(engine: Engine, clock: FakeClock) -> None:
    await engine.broker.create(QueueOptions(name="dead"))
    await engine.broker.create(QueueOptions(name="orders", dead_queue="dead"))
    for name in ("dead", "orders"):
        message = Message(id=f"m-{name}", body=b"x", sent_at=clock.now())
        await engine.broker.sink(name).send([message])
    assert (await checked(engine, clock))["workers"].health is Health.OK

    clock.advance(120)
    alone = (await checked(engine, clock))["workers"]
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=60)
    worked = (await checked(engine, clock))["workers"]

    assert alone.health is Health.WARN
    assert "orders (1 ready)" in alone.text
    assert "dead" not in alone.text, "copies of letters lie there"
    assert worked.health is Health.OK


async def test_letters_of_the_future_are_named(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([make_letter(died=timedelta(hours=-1))])

    assert (await checked(engine, clock))["clock"].health is Health.WARN


@pytest.mark.parametrize(
    ("apart", "said"),
    [(timedelta(hours=2), "2h0m0s ahead of"), (timedelta(hours=-2), "2h0m0s behind")],
)
def test_a_server_whose_clock_differs_is_named(apart: timedelta, said: str) -> None:
    check = doctor._server_clock(NOW + apart, NOW)

    assert check.health is Health.WARN
    assert said in check.text
    assert doctor._server_clock(NOW, NOW).health is Health.OK


async def test_messages_of_lost_workers_are_named(engine: Engine, clock: FakeClock) -> None:
    await engine.broker.sink("orders").send([Message(id="m", body=b"", sent_at=NOW)])
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=10)
    clock.advance(11)
    await engine.broker.sweep()

    check = (await checked(engine, clock))["suspects"]

    assert check.health is Health.WARN
    assert "orders (1)" in check.text


async def test_a_mailbox_that_takes_messages_away_is_named(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.broker.create(QueueOptions(name="bills"))
    await engine.broker.create(QueueOptions(name="orders"))
    before = (await checked(engine, clock))["limits"]

    async def conflict(mailbox: str, *, attempts: int) -> str | None:
        return f"{mailbox} allows {attempts - 1}" if mailbox == "orders" else None

    monkeypatch.setattr(engine.broker, "conflict", conflict)
    after = (await checked(engine, clock))["limits"]

    assert before.health is Health.OK
    assert after == Check("limits", Health.FAIL, "orders allows 0.")


@pytest.mark.parametrize(
    ("said", "health"), [([], Health.OK), (["a rule drops orders"], Health.FAIL)]
)
async def test_rules_of_operators_that_get_in_the_way_are_named(
    engine: Engine,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    health: Health,
) -> None:
    async def overruled() -> Sequence[str]:
        return said

    monkeypatch.setattr(engine.broker, "overruled", overruled, raising=False)

    check = (await checked(engine, clock))["limits"]

    assert check.health is health
    assert all(sentence in check.text for sentence in said)


@pytest.mark.parametrize("kind", [ConfigError, Unavailable])
async def test_rules_that_cannot_be_seen_are_a_warning_in_words(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def overruled() -> Sequence[str]:
        raise kind("look at them by hand")

    monkeypatch.setattr(engine.broker, "overruled", overruled, raising=False)

    check = (await checked(engine, clock))["limits"]

    assert check == Check("limits", Health.WARN, "look at them by hand.")


def queue(name: str, dead_queue: str | None = None) -> QueueInfo:
    options = QueueOptions(name=name, dead_queue=dead_queue)
    return QueueInfo(options=options, ready=0, delayed=0, claimed=0, suspects=0)


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ([queue("a", "a")], "its own"),
        ([queue("a", "b"), queue("b", "c"), queue("c")], "has one of its own"),
        ([queue("a", "b")], "does not exist"),
    ],
)
def test_dead_queues_that_cannot_be_are_named(queues: Sequence[QueueInfo], problem: str) -> None:
    check = doctor._topology(queues)

    assert check.health is Health.FAIL
    assert problem in check.text


async def test_a_file_has_room_and_a_small_log(
    engine: Engine, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.db"
    file.touch()
    (tmp_path / "some.db-wal").write_bytes(b"x" * 100)

    names = {check.name: check for check in await examine(engine, clock, file)}
    monkeypatch.setattr(doctor, "LARGE_WAL", 10)
    monkeypatch.setattr(doctor, "NO_SPACE", 10**18)
    worse = {check.name: check for check in await examine(engine, clock, file)}

    assert names["write-ahead log"].health is Health.OK
    assert names["disk"].health is Health.OK
    assert worse["write-ahead log"].health is Health.WARN
    assert worse["disk"].health is Health.FAIL


@pytest.mark.parametrize("name", ["some.db", "some.db-wal"])
async def test_a_file_that_others_may_read_is_a_warning(
    engine: Engine, clock: FakeClock, tmp_path: Path, name: str
) -> None:
    files = [tmp_path / "some.db", tmp_path / "some.db-wal"]
    for file in files:
        file.touch(0o600)

    well = {check.name for check in await examine(engine, clock, files[0])}
    (tmp_path / name).chmod(0o640)
    found = {check.name: check for check in await examine(engine, clock, files[0])}

    assert "privacy" not in well
    assert found["privacy"].health is Health.WARN
    assert f"chmod go= {tmp_path / name}" in found["privacy"].text


async def test_an_engine_out_of_reach_is_a_finding_not_a_crash(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> Sequence[QueueInfo]:
        raise Unavailable("the disk is gone")

    monkeypatch.setattr(engine.broker, "queues", gone)

    checks = await examine(engine, clock, None)

    assert worst(checks) is Health.FAIL
    assert any("the disk is gone" in check.text for check in checks)


def test_the_worst_counts() -> None:
    ok, warn, fail, skipped = (Check("x", health, "") for health in Health)

    assert worst([ok]) is Health.OK
    assert worst([ok, skipped]) is Health.OK
    assert worst([ok, warn]) is Health.WARN
    assert worst([fail, warn]) is Health.FAIL


async def test_a_flood_of_groups_is_named(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    assert (await checked(engine, clock))["groups"].health is Health.OK
    store.group_limit.per_day = 2

    await store.keep([make_letter(n, fingerprint=f"1-{n}") for n in range(7)])

    check = (await checked(engine, clock))["groups"]
    assert check.health is Health.WARN
    assert "TimeoutError in orders (5 open)" in check.text


async def test_a_large_office_is_not_said_to_be_sound_unchecked(
    engine: Engine, store: LetterStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "VERIFIED", 3)
    await store.keep([make_letter(n) for n in range(4)])

    check = (await checked(engine, clock))["integrity"]

    assert check.health is Health.SKIPPED
    assert "4 letters were not checked here: `dlq verify`" in check.text
