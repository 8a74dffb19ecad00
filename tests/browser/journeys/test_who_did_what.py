"""Who did what: the audit, folded and filtered, says the same as the story of a letter."""

from playwright.async_api import expect

from browser.conftest import Visit
from browser.journeys.acting import heading, orders
from browser.places import Place


async def test_who_did_what(desk: Place, visit: Visit) -> None:
    desk.work()
    await orders(desk, 12)
    letters = [letter["id"] for letter in await desk.died(12)]
    async with desk.api(await desk.token("operator", name="backend")) as api:
        for letter in letters:
            await api.post(f"/letters/{letter}/review", json={"reason": "the bank was down"})

    page = await visit(desk.server)
    await page.keyboard.press("g")
    await page.keyboard.press("a")  # 1
    await expect(heading(page)).to_have_text("Who did what")
    await page.get_by_label("Who").fill("backend")  # 2
    await page.get_by_label("Since").fill("24h")
    await page.get_by_role("button", name="Filter").click()  # 3
    rows = page.get_by_role("main").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("12 letters")
    await expect(rows.first).to_contain_text("the bank was down")

    await rows.first.locator("summary").click()  # 4
    for letter in letters:
        await expect(rows.first).to_contain_text(letter[:10])

    await page.goto(f"/letters/{letters[4]}")
    await expect(page.locator(".story")).to_contain_text("backend reviewed")
    await expect(page.locator(".story")).to_contain_text("the bank was down")


async def test_the_seals_are_checked_on_request(desk: Place, visit: Visit) -> None:
    page = await visit(desk.server, "/audit")

    await page.get_by_role("link", name="Verify the office").click()
    await page.get_by_role("button", name="Verify").first.click()
    await expect(page.get_by_role("main")).to_contain_text("unbroken", ignore_case=True)
