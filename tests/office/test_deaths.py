"""Deaths over time as an office tells them, and the marks beside them."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import Campaign
from deadletter.core.deaths import By
from deadletter.core.errors import ConfigError, NotFound
from deadletter.office.deaths import MarkKind, moment, step_called
from deadletter.office.office import Office
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_bench import a_letter
from deadletter.testing.letters_filing import a_window
from office.making import NOW

HOUR = timedelta(hours=1)


@pytest.fixture
def office(engine: Engine, clock: FakeClock, dice: SeededDice) -> Office:
    return Office(engine, clock, dice)


async def test_a_chart_covers_the_last_day_by_default(office: Office) -> None:
    ages = [timedelta(0), timedelta(minutes=7), 23 * HOUR, 25 * HOUR]
    await office.store.keep([a_letter(at=NOW - age) for age in ages])

    chart = await office.deaths()

    assert (chart.step, chart.total) == (300.0, 3)
    assert sum(chart.series()[""]) == 3
    assert chart.series()[""][-1] == 1
    assert (await office.deaths(since=NOW - 30 * HOUR)).total == 4


async def test_a_chart_tells_the_largest_names_apart(office: Office) -> None:
    letters = [a_letter(at=NOW, fingerprint=f"f-{n}") for n in range(8) for _ in range(n + 1)]
    await office.store.keep(letters)

    chart = await office.deaths(by=By.GROUP)

    assert list(chart.series()) == ["f-7", "f-6", "f-5", "f-4", "f-3", ""]
    assert chart.total == 36
    assert (await office.deaths(group="f-2")).total == 3


async def test_mailboxes_of_others_do_not_count(office: Office) -> None:
    await office.store.keep([a_letter(at=NOW), a_letter(at=NOW, source="mails")])

    chart = await office.deaths(by=By.SOURCE, sources=("mails",))

    assert list(chart.series()) == ["mails"]
    assert (await office.deaths(source="orders")).total == 1
    with pytest.raises(NotFound):
        await office.deaths(source="orders", sources=("mails",))


async def test_a_chart_of_too_many_steps_is_rejected(office: Office) -> None:
    with pytest.raises(ConfigError, match="use a step of 1h or 1d"):
        await office.deaths(since=NOW - 50 * HOUR, step=timedelta(minutes=5))


async def test_marks_are_versions_outages_and_replays(office: Office) -> None:
    store = office.store
    for version, age in (("1.7", 30 * HOUR), ("1.8", 2 * HOUR)):
        await store.keep([a_letter(at=NOW - age, version=version)])
    window = replace(
        a_window(1, mailbox="mails"),
        opened_at=NOW - 26 * HOUR,
        seen_at=NOW - 23 * HOUR,
        closed_at=NOW - 23 * HOUR,
    )
    await store.save_window(window)
    campaign = Campaign(id="c-1", query="is:open", created_at=NOW - HOUR, actor="anna", owner="p-1")
    await store.plan_replay(campaign, [])

    marks = await office.marks()
    of_anna = await office.marks(sources=("orders",), owner="p-1")
    of_others = await office.marks(sources=("mails",), owner="p-2")

    assert [(one.kind, one.mailbox, one.at) for one in marks] == [
        (MarkKind.OUTAGE, "mails", NOW - 26 * HOUR),
        (MarkKind.VERSION, "orders", NOW - 2 * HOUR),
        (MarkKind.REPLAY, "", NOW - HOUR),
    ]
    assert marks[0].until == NOW - 23 * HOUR
    assert marks[1].text == "1.8 first seen at orders"
    assert [one.kind for one in of_anna] == [MarkKind.VERSION, MarkKind.REPLAY]
    assert [one.kind for one in of_others] == [MarkKind.OUTAGE]


async def test_outages_that_last_have_no_end_in_the_past(office: Office, clock: FakeClock) -> None:
    await office.store.save_window(replace(a_window(1), opened_at=NOW, seen_at=NOW))
    clock.advance(600)

    (mark,) = await office.marks()

    assert mark.until == NOW + timedelta(minutes=10)


async def test_verify_finds_deaths_that_are_not_counted(store: LetterStore) -> None:
    await store.keep([a_letter(at=NOW), a_letter(at=NOW)])
    assert not await store.verify()
    if store.features.engine == "memory":
        store._shelf.deaths.clear()  # type: ignore[attr-defined]
    else:
        await store._db.write(  # type: ignore[attr-defined]
            lambda c: c.execute("UPDATE deaths SET n = 1")
        )

    (finding,) = await store.verify()

    assert "deaths of orders are counted on" in finding
    assert "but 2 letters died then" in finding


@pytest.mark.parametrize(
    ("text", "ago"), [("24h", 24 * HOUR), ("90m", 1.5 * HOUR), ("2w", timedelta(weeks=2))]
)
def test_a_duration_is_a_moment_before_now(text: str, ago: timedelta) -> None:
    assert moment(text, NOW) == NOW - ago


def test_odd_moments_and_steps_are_rejected() -> None:
    assert moment("2026-11-01T12:00Z", NOW).isoformat() == "2026-11-01T12:00:00+00:00"
    for text in ("", "yesterday", "24", "2026-13-01", "*"):
        with pytest.raises(ConfigError):
            moment(text, NOW)
    assert step_called("1h") == HOUR
    with pytest.raises(ConfigError, match="5m, 1h or 1d"):
        step_called("hour")
