"""The list of groups: tabs, narrowing, order, pages, and what limited people see."""

from datetime import timedelta

import pytest

from deadletter.core.access import Role
from deadletter.ports import Engine
from deadletter.server.console.groups import group_list
from deadletter.server.context import ServerContext
from office.making import NOW
from server.console.conftest import Browser, SignedIn
from server.console.groups_rig import HOSTILE, keep, letter, live, rows, stand, tabs


async def test_an_empty_office_teaches_what_brings_letters(browser: Browser) -> None:
    page = await browser.get("/groups")

    assert page.h1 == "No open letters"
    assert "No letter has ever died here." in page.main.text
    assert "dlq drain" in page.main.text
    assert page.all("nav", class_="tabs") == []


async def test_groups_come_with_most_open_first_and_their_share(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-big", 3, error_text="no rate", version="1.7")
    await keep(context.store, "2-big", error_text="no rate", version="1.8", age=60)
    await keep(context.store, "2-small", error_type="shop.Gone", code="GONE", age=7_200)

    page = await browser.get("/groups")

    assert page.h1 == "5 open letters, 2 problems"
    assert rows(page) == ["2-big", "2-small"]
    big, small = page.table("Groups of letters with the same cause")
    assert big[1] == "new"
    assert big[2].startswith("TimeoutError no rate orders · shop:charge · versions 1.7 and 1.8")
    assert "3f09ab" not in page.html  # the digest of a line says nothing to people
    assert big[4:7] == ["4 80%", "4", "nobody"]
    assert small[4] == "1 20%"
    assert small[7] == "2 h ago"
    spark = page.find("tr", id="g-2-big").find("svg", class_="spark")
    assert spark["aria-label"] == "0 to 4 an hour, now 0"


async def test_tabs_count_groups_and_list_those_of_a_status(
    browser: Browser, context: ServerContext
) -> None:
    for name in ("new", "ongoing", "snoozed", "resolved", "muted"):
        await keep(context.store, f"2-{name}")
    await stand(context.store, "2-ongoing", "ongoing", owner="bo")
    await stand(context.store, "2-snoozed", "snoozed", until=NOW + timedelta(hours=2))
    await stand(context.store, "2-resolved", "resolved", version="1.9")
    await stand(context.store, "2-muted", "muted")

    page = await browser.get("/groups")

    assert tabs(page) == {
        "Listed": "3",
        "New": "1",
        "Regressed": "0",
        "Ongoing": "1",
        "Snoozed": "1",
        "Muted": "1",
        "Resolved": "1",
        "All": "5",
    }
    assert set(rows(page)) == {"2-new", "2-ongoing", "2-resolved"}
    snoozed = await browser.get("/groups?status=snoozed")
    assert rows(snoozed) == ["2-snoozed"]
    assert "until 2030-01-01 14:00 UTC" in snoozed.main.text
    assert len(rows(await browser.get("/groups?status=all"))) == 5
    regressed = await browser.get("/groups?status=regressed")
    assert "No group is regressed" in regressed.main.text


async def test_a_list_is_narrowed_by_text_and_mailbox(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", error_text="no Rate for CH")
    await keep(context.store, "2-b", source="mails", error_type="smtp.Busy")

    page = await browser.get("/groups?text=rate")
    sent = await browser.submit(page.form(button="Show"), text="", source="mails", sort="latest")

    assert rows(page) == ["2-a"]
    assert tabs(page)["Listed"] == ""  # counting them would read all groups
    assert rows(sent) == ["2-b"]
    assert browser.path == "/groups?text=&source=mails&sort=latest"
    assert sent.h1 == "1 open letter, 1 problem"
    nothing = await browser.get("/groups?text=nothing+like+it")
    assert "No group of this tab matches" in nothing.main.text
    assert nothing.link("All of them") == "/groups"


async def test_a_list_has_pages_that_follow_each_other(
    browser: Browser, context: ServerContext
) -> None:
    for n in range(27):
        await keep(context.store, f"2-{n:02}", age=60 + n)

    first = await browser.get("/groups?sort=latest")
    second = await browser.get(first.link("More groups"))

    assert [*rows(first), *rows(second)] == [f"2-{n:02}" for n in range(27)]
    assert "25 of 27 groups" in first.main.text
    assert second.link("First page") == "/groups?sort=latest"
    assert not [link for link in second.all("a") if link.text == "More groups"]


async def test_rows_hold_still_while_somebody_reads(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a", 2)
    await keep(context.store, "2-b")
    path = live(await browser.get("/groups"), "rows")

    await keep(context.store, "2-b", 4)
    await keep(context.store, "2-new")
    await stand(context.store, "2-a", "muted")
    part = await browser.part(path)

    assert rows(part) == ["2-a", "2-b"]
    cells = part.table("Groups of letters with the same cause")
    assert cells[1][4].startswith("5 ")
    assert "no longer on this page" in cells[0][2]
    assert "gone" in part.find("tr", id="g-2-a").classes
    assert "1 other group belongs on this page now" in part.find("p", class_="pill").text
    assert live(part, "rows") == path


async def test_the_part_of_the_tabs_stands_alone(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, "2-a")

    page = await browser.get("/groups")
    part = await browser.part(live(page, "tabs"))

    assert tabs(part) == tabs(page)
    assert part.h1 == page.h1
    tag = browser.last.headers["hx-ptag"] if browser.last else ""
    again = await browser.client.get(
        live(page, "tabs"), headers={"hx-request": "true", "hx-ptag": tag}
    )
    assert again.status_code == 304


async def test_people_limited_to_a_mailbox_see_its_groups_alone(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-ours", 2)
    await keep(guarded.store, "2-theirs", 3, source="mails")
    somebody = await signed_in(Role.READER, "orders")

    page = await somebody.get("/groups?status=all")
    path = live(page, "rows").replace("hold=2-ours", "hold=2-ours%2C2-theirs")
    part = await somebody.part(path)
    other = await somebody.get("/groups?source=mails")

    assert rows(page) == ["2-ours"]
    assert page.h1 == "2 open letters, 1 problem"
    assert tabs(page)["All"] == "1"
    assert rows(part) == ["2-ours"]
    assert rows(other) == []
    assert other.h1 == "No open letters"
    for one in (page, part, other):
        assert "2-theirs" not in one.html


async def test_readers_see_acts_that_need_operators(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await keep(guarded.store, "2-a")
    reader = await signed_in(Role.READER)

    bar = (await reader.get("/groups")).find("div", class_="chosen")

    buttons = bar.all("button")
    assert all(one.get("aria-disabled") == "true" for one in buttons)
    assert {one.get("name") for one in buttons} == {""}


async def test_hostile_texts_are_shown_as_text(browser: Browser, context: ServerContext) -> None:
    await keep(
        context.store,
        "2-hostile",
        error_type=f"x.{HOSTILE}",
        error_text=HOSTILE + "A" * 5_000,
        version=HOSTILE[:90],
        source="a b<c>",
        frame="<b>" * 80,
    )
    await stand(context.store, "2-hostile", "ongoing", owner=HOSTILE, note=HOSTILE * 10)

    page = await browser.get("/groups?text=%3Cimg")

    assert page.main.all("script") == page.main.all("img") == []
    assert "\u202e" not in page.html
    assert "\\u202eevil" in page.main.text
    assert len(page.html) < 80_000


async def test_parameters_are_checked(browser: Browser) -> None:
    for path in ("/groups?status=odd", "/groups?after=zzz", "/groups?nothing=1", "/groups?part=x"):
        page = await browser.get(path, status=400)
        assert page.h1 == "That did not work"


async def test_a_list_asks_the_store_no_more_for_many_groups(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(25):
        await keep(context.store, f"2-{n:02}")
    asked: list[str] = []
    store = type(context.store)
    for name in ("deaths", "deaths_by_version", "groups", "find", "get", "latest_audit"):
        real = getattr(store, name)

        async def counted(
            self: object, *args: object, _name: str = name, _real: object = real, **how: object
        ) -> object:
            asked.append(_name)
            return await _real(self, *args, **how)  # type: ignore[operator]

        monkeypatch.setattr(store, name, counted)

    await browser.get("/groups")

    assert sorted(asked) == ["deaths", "deaths_by_version", "groups", "groups"]  # one: the badge


async def test_deaths_that_are_not_told_apart_are_not_drawn_as_none(
    browser: Browser, context: ServerContext
) -> None:
    await context.store.keep([letter(f"2-{n:02}") for n in range(60)])

    page = await browser.get("/groups?text=timeout")

    told = [row[3] for row in page.table("Groups of letters with the same cause")]
    assert "not told apart" in told
    assert all(svg["aria-label"] != "none an hour" for svg in page.main.all("svg", class_="spark"))
    panel = await browser.get(f"/groups/{rows(page)[told.index('not told apart')]}")
    assert "1 death of it is counted without group and version" in panel.main.text


async def test_the_foot_names_the_command_and_the_call(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, "2-a")

    page = await browser.get("/groups?status=muted&text=two+words&sort=latest")

    foot = page.find("footer", class_="foot")
    assert "dlq groups --status muted --text 'two words' --order latest" in foot.text
    call = await browser.client.get(page.link("as an API call"))
    assert call.json() == {"groups": [], "after": None}


@pytest.mark.parametrize("url", ["memory://"])
async def test_a_page_is_the_same_in_memory(
    url: str, browser: Browser, context: ServerContext, engine: Engine
) -> None:
    await keep(context.store, "2-a", 2)

    assert rows(await browser.get("/groups")) == ["2-a"]


def test_a_search_for_chosen_groups_is_exact() -> None:
    assert group_list.chosen_query(["2-a"]) == "group:2-a is:open"
    assert group_list.chosen_query(["2-a", "b c*"]) == 'group:[2-a,"b c\\*"] is:open'
