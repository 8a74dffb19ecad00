"""The overview: what needs somebody, deaths over time, mailboxes, replays and acts."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, NoReturn, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec import structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Unavailable
from deadletter.core.intakes import IntakeState, IntakeStatus
from deadletter.core.letter import By, GroupStatus
from deadletter.core.query import parse
from deadletter.office.triage.attention import Need, NeedKind
from deadletter.ports import QueueInfo
from deadletter.server.acting.office_views import needs_for
from deadletter.server.auth.authenticator import LOCAL
from deadletter.server.console.fresh import Fresh
from deadletter.server.console.notices import Notice
from deadletter.server.console.overview import page as overview_page
from deadletter.server.console.overview.needs import need_path, rows_of
from deadletter.server.console.overview.page import Part
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.console.overview_rig import KEY_ERROR, TIMEOUT, fill, opened, text_of

PARTS = get_args(Part)


async def test_an_intake_in_trouble_needs_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(context: ServerContext, who: Identity) -> Sequence[IntakeStatus]:
        return () if who.sources else (broken, structs.replace(broken, name="fine", trouble=""))

    broken = IntakeStatus(
        name="old",
        server="rabbit",
        address="amqp://rabbit",
        place="orders.dead",
        state=IntakeState.FOLLOWING,
        trouble="the queue does not exist",
    )
    monkeypatch.setattr("deadletter.server.acting.office_views.list_intakes", stuck)
    async with opened(tmp_path) as office:
        (need,) = await needs_for(office.context, LOCAL)
        limited = structs.replace(LOCAL, sources=("orders",))
        theirs = await needs_for(office.context, limited)

    assert (need.kind, need.text) == (NeedKind.INTAKE, "The intake old: the queue does not exist")
    assert need_path(need) == "/intake"
    assert theirs == []


async def test_what_needs_somebody_comes_first_each_with_its_link(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        shown = await office.get("/")

    text = text_of(shown)
    assert "7 open letters, 3 problems" in text
    assert text.index("orders has been stopped for 23 min") < text.index("is new: 4 open")
    links = re.findall(r'class="button" href="([^"]+)" aria-label="(\w+):', shown.text)
    assert ("/queues/orders", "Mailbox") in links
    assert (f"/groups/{KEY_ERROR}", "Look") in links


def test_every_need_leads_somewhere() -> None:
    needs = [Need(kind=kind, text="text", target="a/b") for kind in NeedKind]

    rows = rows_of(needs)

    assert rows.total == len(NeedKind)
    assert all(row.link.startswith("/") and row.word for row in (*rows.first, *rows.more))
    query = Need(kind=NeedKind.UNREVIEWED, text="", target="is:pending source:a", is_query=True)
    assert need_path(query) == "/letters?q=is%3Apending%20source%3Aa"
    assert need_path(needs[1]) == "/replays/a%2Fb"


async def test_a_young_office_is_shown_in_a_span_of_its_age(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        text = (await office.get("/")).text

    assert "Deaths per 5 minutes, last 1h: 7 deaths" in text
    assert re.search(r'href="/\?span=1h&amp;by=group" aria-current="page"', text)


async def test_parts_without_a_chart_do_not_ask_how_old_the_office_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(_: object) -> NoReturn:
        raise AssertionError("this reads the deaths of a month")

    monkeypatch.setattr("deadletter.server.console.overview.routes.first_span", asked)
    async with opened(tmp_path) as office:
        await fill(office.context)
        for part in ("headline", "needs", "replays", "mailboxes", "acts"):
            assert (await office.get(f"/?part={part}", part=True)).status_code == 200


async def test_deaths_are_charted_with_marks_and_as_a_table(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        day = await office.get("/?span=24h&by=group")
        week = await office.get("/?span=7d&by=version")
        month = await office.get("/?span=30d&by=source")

    (label,) = re.findall(r'id="deaths-plot" role="img" aria-label="([^"]+)"', day.text)
    assert label.startswith("Deaths per 5 minutes, last 24h: 7 deaths; most ")
    assert "KeyError &#39;vat_rate&#39;" in day.text
    assert "1.8.0 first seen at orders" in day.text
    assert "10 of the last 10 attempts failed transiently" in day.text
    assert 'class="outage-span"' in day.text
    rows = re.findall(r'<tr><th scope="row">([-0-9 :]+)</th>', day.text)
    assert 20 <= len(rows) <= 31
    assert ">1.8.0</bdi>" in week.text
    assert ">mails</bdi>" in month.text
    totals = re.findall(r'data-totals="([0-9 ]+)"', day.text + week.text + month.text)
    assert [sum(map(int, one.split())) for one in totals] == [7, 7, 7]


async def test_an_outage_leads_to_its_letters_and_to_its_span(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        shown = (await office.get("/")).text
        (letters,) = re.findall(r'href="/letters\?q=(during[^"]+)"', shown)
        page = await office.context.office.letters.search(parse_qs(f"q={letters}")["q"][0])
        (span,) = re.findall(r'href="([^"]+)" aria-label="Choose the span of', shown)
        chosen = await office.text(unescape(span).partition("#")[0])

    # Four died while orders was held back; the span begins earlier, and has all mailboxes.
    assert len(page.heads) == 4
    assert "7 letters of this span are open now" in chosen


async def test_texts_of_messages_are_inert(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        shown = await office.get("/")

    assert "<b>the bank" not in shown.text
    assert "\u202e" not in shown.text
    assert "&lt;b&gt;the bank" in shown.text


async def test_a_chosen_span_leads_to_its_letters_and_to_a_replay(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        now = office.context.clock.now()
        begin, end = now - timedelta(minutes=40), now - timedelta(minutes=10)
        path = f"/?span=24h&by=group&from={begin:%Y-%m-%dT%H:%M}&to={end:%Y-%m-%dT%H:%M}"
        page = await office.get(path)
        part = await office.get(f"{path}&part=chosen", part=True)
        (link,) = re.findall(r'class="button primary" href="([^"]+)"', page.text)
        query = parse_qs(urlsplit(unescape(link)).query)["q"][0]
        found = await office.context.office.letters.search(parse(query))

    assert "6 letters of this span are open now" in text_of(page)
    assert link.startswith("/replays/new?q=")
    assert {head.source for head in found.heads} == {"orders"}
    assert len(found.heads) == 6
    assert "Plan replay of 6 letters" in text_of(part)
    # The address of the page says which span is chosen.
    shown = parse_qs(urlsplit(part.headers["hx-replace-url"]).query)
    assert shown["from"] == [f"{begin:%Y-%m-%dT%H:%M}"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=soon&to=", "is not a time"),
        ("from=2026-11-19T12:00&to=2026-11-19T11:00", "must be after its beginning"),
        ("from=&to=2026-11-19T11:00", "is not a time"),
    ],
)
async def test_a_wrong_span_is_said_beside_the_fields(
    tmp_path: Path, query: str, sentence: str
) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        shown = await office.get(f"/?{query}")

    assert shown.status_code == 200
    assert sentence in text_of(shown)
    assert 'aria-invalid="true"' in shown.text


async def test_readers_see_no_button_that_sends(tmp_path: Path) -> None:
    async with opened(tmp_path, guarded=True) as office:
        await fill(office.context)
        path = "/?from=2h&to=1m"
        reader = await office.text(path, Role.READER)
        operator = await office.text(path, Role.OPERATOR)

    assert "Plan replay of 6 letters" in operator
    assert "Plan replay" not in reader


async def test_limited_tokens_see_their_mailboxes_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, guarded=True) as office:
        await fill(office.context)
        mine = await office.get("/", Role.READER, "mails")

    text = text_of(mine)
    assert "1 open letter, 1 problem" in text
    assert "orders" not in text
    assert "vat_rate" not in mine.text
    (totals,) = re.findall(r'data-totals="([0-9 ]+)"', mine.text)
    assert sum(map(int, totals.split())) == 1


async def test_an_empty_office_teaches_and_a_calm_one_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        empty = await office.text("/")
        await fill(office.context)
        await office.context.store.release_windows("orders", By("anna"))
        for name in (KEY_ERROR, TIMEOUT, "f-mails"):
            await office.context.office.groups.set_status(name, GroupStatus.ONGOING, By("anna"))
        calm = await office.text("/")

    assert "No letter has ever died here." in empty
    assert "dlq drain" in empty
    assert "Nothing needs you." in calm
    assert "Last look" in calm


async def test_a_store_that_does_not_count_deaths_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        features = office.context.store.features
        without = _changed(features, counts_deaths=False, engine="mongodb")
        monkeypatch.setattr(office.context.store, "features", without)
        shown = await office.get("/")
        chosen = await office.text("/?from=2h&to=1m&part=chosen")

    assert "An office in mongodb does not count deaths over time." in text_of(shown)
    assert "deaths-plot" not in shown.text
    assert "letters of this span are open now" in chosen


def _changed(value: Any, **fields: Any) -> Any:
    return type(value)(**{name: getattr(value, name) for name in value.__struct_fields__} | fields)


@pytest.mark.parametrize("part", PARTS)
async def test_parts_come_alone_and_are_not_sent_twice(tmp_path: Path, part: str) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        first = await office.get(f"/?part={part}", part=True)
        again = await office.get(f"/?part={part}", part=True, tag=first.headers["hx-ptag"])
        whole = await office.get("/")

    assert first.status_code == 200
    assert "<html" not in first.text
    assert again.status_code == 304
    assert f'id="{part}"' in first.text
    assert f'id="{part}"' in whole.text


async def test_a_slow_engine_does_not_slow_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)

        async def slow() -> Sequence[QueueInfo]:
            await asyncio.sleep(30)
            return []

        monkeypatch.setattr(overview_page, "AT_ONCE", 0.01)
        monkeypatch.setattr(overview_page, "PATIENCE", 0.05)
        monkeypatch.setattr(office.context.engine.broker, "queues", slow)
        page = await office.text("/")
        part = await office.text("/?part=mailboxes")

    assert "Waiting for the numbers of messages." in page
    assert "sqlite did not answer within 0.05 s" in part
    assert "orders" in part


async def test_an_engine_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> Sequence[QueueInfo]:
        raise Unavailable("the broker is away")

    async with opened(tmp_path) as office:
        await fill(office.context)
        monkeypatch.setattr(office.context.engine.broker, "queues", away)
        assert "the broker is away" in await office.text("/?part=mailboxes")


async def test_acts_of_a_row_are_one_line(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        by = By("anna", "the bank was down")
        found = await office.context.office.letters.search("source:orders")
        await office.context.store.note([head.id for head in found.heads], "seen", by)
        shown = await office.text("/?part=acts")

    assert shown.count("anna") == 1
    assert "6 letters" in shown


async def test_badges_are_a_part_of_their_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await fill(office.context)
        shown = await office.get("/badges", part=True)

    assert 'data-groups="3" data-letters="7" data-replays=""' in shown.text


async def test_unknown_spans_and_parts_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        for path in ("/?span=2h", "/?by=owner", "/?part=rows", "/?spam=1"):
            assert (await office.get(path)).status_code == 400, path


# Values that are shared.


async def test_a_hundred_viewers_ask_the_office_once() -> None:
    fresh, asked = Fresh(FakeClock(datetime(2026, 1, 1, tzinfo=UTC))), []

    async def make() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    assert await asyncio.gather(*(fresh.get("n", make) for _ in range(100))) == [1] * 100
    assert await fresh.get("n", make) == 1
    assert await fresh.get("n", make, lasts=0.0) == 2
    fresh.forget()
    assert await fresh.get("n", make) == 3


async def test_what_takes_long_is_there_for_the_next_one() -> None:
    fresh, gate = Fresh(FakeClock(datetime(2026, 1, 1, tzinfo=UTC))), asyncio.Event()

    async def make() -> str:
        await gate.wait()
        return "done"

    assert await fresh.soon("slow", make, patience=0.001) is None
    gate.set()
    assert await fresh.soon("slow", make, patience=1.0) == "done"


async def test_errors_are_not_kept() -> None:
    fresh, tries = Fresh(FakeClock(datetime(2026, 1, 1, tzinfo=UTC))), []

    async def make() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("away")
        return "back"

    with pytest.raises(Unavailable):
        await fresh.get("one", make)
    assert await fresh.get("one", make) == "back"


async def test_whoever_acted_sees_it_in_the_next_part(tmp_path: Path) -> None:
    async def undone(context: ServerContext, who: Identity) -> Notice:
        return Notice(text="undone")

    async with opened(tmp_path) as office:
        await fill(office.context)
        before = await office.get("/?part=headline", part=True)
        await office.context.office.groups.set_status(KEY_ERROR, GroupStatus.MUTED, By("anna"))
        meanwhile = await office.get("/?part=headline", part=True)
        undo = office.client.app.state.console.undoing.keep(LOCAL, undone)
        await office.client.post(undo, headers={"accept": "text/html", "hx-request": "true"})
        after = await office.get("/?part=headline", part=True)

    assert "3 problems" in before.text
    assert meanwhile.text == before.text  # shared for a second
    assert "2 problems" in after.text
