"""From the alert to a resolved group: read, compare, replay what was from before, resolve."""

import pytest
from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.journeys.acting import (
    LONG,
    arrive,
    audit_of,
    dialog,
    group_of,
    notice,
    orders,
    plan,
    send,
    tab_to,
    told,
)
from browser.places import Place
from deadletter.testing.fakes import eventually
from servers.fixtures import needing_postgresql

CREDENTIALS = {"authorization": "Bearer of-yesterday"}


@pytest.fixture(params=["sqlite", needing_postgresql()])
def office_url(request: pytest.FixtureRequest, office_url: str) -> str:
    if request.param == "sqlite":
        return office_url
    return str(request.getfixturevalue("postgresql_url"))


async def outage(desk: Place) -> str:
    """Let 121 orders die in version 1.8.0, three of them with credentials; return the group."""
    worker = desk.work("1.8.0")
    await orders(desk, 118)
    await orders(desk, 3, first=119, headers=CREDENTIALS)
    await desk.died(121)
    worker.end()
    return await group_of(desk, "TimeoutError")


async def test_paged_to_resolved(desk: Place, visit: Visit) -> None:
    group = await outage(desk)
    page = await visit(desk.server, f"/groups/{group}", permissions=["clipboard-read"])  # 1
    await understand(page)
    desk.work("1.8.1")  # 7: while the page is open
    fixed = page.locator("#fixed")
    await expect(fixed).to_contain_text("1.8.1 runs on the only worker", timeout=LONG)
    await expect(fixed).to_contain_text("nobody has died of this in it")
    await replay(page)
    await tidy(page, group)
    acts = [entry["action"] for entry in await audit_of(desk)]
    assert {"group", "replay", "move"} <= {*acts}


async def understand(page: Page) -> None:
    """Read what broke and what its letters share; say that somebody is on it."""
    await arrive(page, "TimeoutError")
    main = page.get_by_role("main")
    await expect(main).to_contain_text("new")  # 2
    await expect(main.locator(".numbers").first).to_contain_text("121")
    await expect(main).to_contain_text("1.8.0")

    common = page.locator("#common")  # 3
    country = common.locator("div", has_text="body.country").first
    await expect(country).to_contain_text("CH")
    await expect(country).to_contain_text("121 of 121")

    await page.keyboard.press("c")  # 4
    await arrive(page, "Compare letter")
    changed = page.get_by_role("main").locator("ins, del")
    await expect(changed.first).to_be_visible()
    assert not [text for text in await changed.all_inner_texts() if "country" in text]
    await page.go_back()
    await arrive(page, "TimeoutError")

    await page.keyboard.press("a")  # 5
    await expect(notice(page)).to_contain_text("is ongoing")
    await page.keyboard.press("m")
    await expect(main).to_contain_text("first-administrator")
    await page.keyboard.press("l")  # 6
    await eventually(lambda: copied(page))


async def copied(page: Page) -> bool:
    """Return whether the address of the page was copied."""
    return bool(await page.evaluate("navigator.clipboard.readText()") == page.url)


async def replay(page: Page) -> None:
    """Send back what died of it in older versions, without the letters that need a look."""
    await page.locator("#fixed").get_by_role("link", name="Plan replay of").click()  # 8
    await plan(page, "the bank is back")
    verdicts = page.locator(".verdicts")  # 9
    await expect(verdicts).to_contain_text("118")
    credentials = verdicts.locator("li", has_text="credentials")
    await expect(credentials).to_contain_text("3")
    box = credentials.get_by_role("checkbox")
    if await box.is_checked():
        await box.uncheck()
    await expect(page.get_by_role("radio", name="Careful")).to_be_checked()  # 10
    await expect(page.locator("#preview")).to_contain_text("118")
    await send(page, "Send the first 10")  # 11
    await expect(page.locator(".ladder")).to_contain_text("10", timeout=LONG)  # 12
    await told(page, "118")
    await expect(page.locator(".counts .handled")).to_contain_text("118", timeout=LONG)  # 13


async def tidy(page: Page, group: str) -> None:
    """Resolve the group, and discard what was left out."""
    await page.get_by_role("link", name="Resolve the group").click()
    await arrive(page, "TimeoutError")
    await page.keyboard.press("v")  # 14
    await expect(dialog(page).get_by_label("version", exact=False).first).to_have_value("1.8.1")
    await dialog(page).get_by_role("button", name="Resolve").click()
    await expect(notice(page)).to_contain_text("1.8.1")

    await page.goto(f"/letters?q=is%3Aopen%20group%3A{group}")  # 15
    rows = page.get_by_role("main").locator("tbody tr")
    await expect(rows).to_have_count(3)
    await page.keyboard.press("Shift+*")
    await expect(page.locator("[data-chosen]").first).to_have_text("3")
    await page.keyboard.press("d")
    await dialog(page).get_by_label("Why").fill("their tokens are void")
    await dialog(page).get_by_role("button", name="Discard 3 letters").click()
    await expect(notice(page)).to_contain_text("3 letters discarded")

    await page.goto("/")  # 16
    await expect(page.get_by_text("Nothing needs you")).to_be_visible()


async def test_it_stops_by_itself_when_they_fail_in_another_way(desk: Place, visit: Visit) -> None:
    group = await outage(desk)
    desk.work("1.8.1", SHOP_BUG="iban")
    page = await visit(desk.server, f"/replays/new?q=group%3A{group}")
    await plan(page, "the bank is back")
    await send(page, "Send the first 10")

    halted = page.locator("div.halted")
    await expect(halted).to_contain_text("4 of 10", timeout=LONG)
    await expect(halted).to_contain_text("not sent")
    causes = page.locator("#causes")
    await expect(causes).to_contain_text("another error")
    await expect(causes).to_contain_text("KeyError")
    await expect(causes).to_contain_text("iban")

    await page.goto("/")
    needs = page.locator(".needs")
    await expect(needs).to_contain_text("halted")
    await page.goto("/groups")
    await expect(page.get_by_role("main")).to_contain_text("KeyError")
    await desk.died(1, "is:pending error:KeyError")


async def test_it_can_be_done_with_the_keyboard_alone(desk: Place, visit: Visit) -> None:
    await outage(desk)
    desk.work("1.8.1")
    page = await visit(desk.server, "/groups")
    await arrive(page, "open letters")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await arrive(page, "TimeoutError")
    await page.keyboard.press("a")
    await expect(notice(page)).to_contain_text("is ongoing")
    await page.keyboard.press("r")
    await arrive(page, "Plan a replay")
    await tab_to(page, page.get_by_label("Reason"))
    await page.keyboard.type("the bank is back")
    await enter(page, "Choose these letters")
    await expect(page.locator("#preview")).to_contain_text("Send", timeout=LONG)
    await page.wait_for_load_state()
    await enter(page, "Send the first 10")
    await tab_to(page, dialog(page).get_by_role("button", name="Send the first 10"))
    await page.keyboard.press("Enter")
    await expect(page.locator(".counts .handled")).to_contain_text("1", timeout=LONG)
    await told(page, "handled")


async def enter(page: Page, name: str) -> None:
    """Tab to a button of the main part and press it."""
    await tab_to(page, page.get_by_role("main").get_by_role("button", name=name).first)
    await page.keyboard.press("Enter")
