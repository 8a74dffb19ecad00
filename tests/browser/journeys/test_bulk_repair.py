"""Repair many letters by the edit of one, and send exactly these back."""

import pytest
from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.journeys.acting import LONG, arrive, audit_of, notice, send, tab_to, told
from browser.places import Place
from servers.fixtures import needing_postgresql

BROKEN = 9
OTHERS = 3


@pytest.fixture
def office_url(request: pytest.FixtureRequest, office_url: str) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return office_url
    return str(request.getfixturevalue("postgresql_url"))


async def broken_orders(desk: Place) -> str:
    """Let orders die of amounts that are text, three of them another one; return a letter."""
    desk.work()
    bodies = [{"id": f"o-{number}", "amount": "many"} for number in range(BROKEN)]
    bodies += [{"id": f"x-{number}", "amount": "few"} for number in range(OTHERS)]
    await desk.send("orders", bodies)
    letters = await desk.died(BROKEN + OTHERS)
    async with desk.api() as api:
        for one in letters:
            body = (await api.get(f"/letters/{one['id']}/body")).json()
            if body["amount"] == "many":
                return str(one["id"])
    raise AssertionError("no order has died of its amount")


async def edit(page: Page) -> None:
    """Change the amount of one letter to a number, on its page."""
    body = page.get_by_role("textbox", name="Body")
    await body.fill((await body.input_value()).replace('"many"', "500"))
    await expect(page.locator("#changes ins")).to_contain_text(["500"])
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(notice(page)).to_contain_text("edited")


async def amounts(desk: Place) -> list[object]:
    """Return the amounts of all letters."""
    async with desk.api() as api:
        heads = (await api.get("/letters", params={"limit": 100})).json()["heads"]
        found = [(await api.get(f"/letters/{one['id']}/body")).json() for one in heads]
    return sorted((one["amount"] for one in found), key=str)


@pytest.mark.parametrize("office_url", ["sqlite", needing_postgresql()], indirect=True)
async def test_bulk_repair(desk: Place, visit: Visit) -> None:
    letter = await broken_orders(desk)
    page = await visit(desk.server, f"/letters/{letter}/edit")
    await edit(page)

    offer = page.locator("#same")
    await expect(offer).to_contain_text("fits 8 of the 11 other open letters of its group")
    await offer.get_by_role("link", name="Repair them too").click()  # 1
    await arrive(page, "Repair letters")
    await page.get_by_role("button", name="See what would change").click()  # 2
    repair = page.locator("#repair")
    await expect(repair).to_contain_text("The change fits 8 of 12 letters")
    await expect(repair.locator(".is-other_value")).to_contain_text("3 have another value there")
    await repair.locator(".is-other_value summary").click()  # 3
    await expect(repair.locator(".is-other_value .samples a")).to_have_count(OTHERS)
    await expect(repair.locator("ins").first).to_contain_text("500")
    await page.get_by_label("Reason").fill("amount was text")  # 4
    await page.get_by_role("button", name="Repair 8 letters").click()  # 5
    await expect(notice(page)).to_contain_text("8 letters repaired")
    assert await amounts(desk) == [*[500] * BROKEN, *["few"] * OTHERS]

    await page.get_by_role("button", name="Plan replay of the 8").click()  # 6
    await expect(page.locator("#preview")).to_contain_text("Send", timeout=LONG)
    await page.wait_for_load_state()
    await send(page, "Send")  # 7, 8
    await told(page, "8 handled")

    edits = [one for one in await audit_of(desk) if one["action"] == "edit"]
    assert [one["reason"] for one in edits].count("amount was text") == BROKEN - 1


async def test_a_repair_is_undone(desk: Place, visit: Visit) -> None:
    letter = await broken_orders(desk)
    page = await visit(desk.server, f"/letters/{letter}/edit")
    await edit(page)
    await page.locator("#same").get_by_role("link", name="Repair them too").click()
    await page.get_by_role("button", name="See what would change").click()
    await page.get_by_label("Reason").fill("a guess")
    await page.get_by_role("button", name="Repair 8 letters").click()

    await notice(page).get_by_role("button", name="Undo").click()

    await expect(notice(page)).to_contain_text("8 letters as before the repair")
    assert (await amounts(desk)).count("many") == BROKEN - 1


async def test_it_can_be_done_with_the_keyboard_alone(desk: Place, visit: Visit) -> None:
    letter = await broken_orders(desk)
    page = await visit(desk.server, f"/letters/{letter}/edit")
    await edit(page)

    await expect(page.locator("#same")).to_contain_text("fits 8")
    await tab_to(page, page.get_by_role("link", name="Repair them too"))
    await page.keyboard.press("Enter")
    await arrive(page, "Repair letters")
    await tab_to(page, page.get_by_role("button", name="See what would change"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#repair")).to_contain_text("The change fits 8")
    await tab_to(page, page.get_by_label("Reason"))
    await page.keyboard.type("amount was text")
    await tab_to(page, page.get_by_role("button", name="Repair 8 letters"))
    await page.keyboard.press("Enter")
    await expect(notice(page)).to_contain_text("8 letters repaired")
