"""The hand-over: a report of the shift, to copy as Markdown and to print."""

from playwright.async_api import expect

from browser.conftest import Visit
from browser.journeys.acting import heading, orders
from browser.places import Place


async def test_hand_over(desk: Place, visit: Visit) -> None:
    desk.work()
    await orders(desk, 5)
    letters = [letter["id"] for letter in await desk.died(5)]
    async with desk.api(await desk.token("operator", name="backend")) as api:
        await api.post(
            "/letters/discard", json={"ids": letters[:2], "reason": "test orders", "expect": 2}
        )

    page = await visit(desk.server, "/report?since=8h", permissions=["clipboard-read"])  # 1
    await expect(heading(page)).to_have_text("Shift report")
    main = page.get_by_role("main")
    await expect(main).to_contain_text("TimeoutError")
    await expect(main).to_contain_text("backend")
    await page.get_by_role("button", name="Copy the report as Markdown").click()  # 2
    text = await page.evaluate("navigator.clipboard.readText()")
    assert "TimeoutError" in text
    assert "backend" in text

    await page.emulate_media(media="print")
    await expect(page.get_by_role("navigation", name="Screens")).to_be_hidden()
    await expect(heading(page)).to_be_visible()
