"""Without scripts everything can be read, and every form works."""

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from browser.conftest import Office, Visit
from browser.offices import fill, many_letters
from browser.places import Place


@pytest.mark.parametrize("office", ["many"], indirect=True)
async def test_every_page_can_be_read(office: Office, visit: Visit) -> None:
    page = await visit(office.server, scripts=False)
    for address in office.found.addresses:
        answer = await page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        await expect(page.get_by_role("heading", level=1), address).to_be_visible()
        await expect(page.locator("noscript p").first, address).to_contain_text("Scripts are off")
        waits = page.get_by_role("main").get_by_text("Loading", exact=False)
        assert await waits.count() == 0, f"{address} waits for a script"


async def test_one_letter_is_reviewed(desk: Place, visit: Visit) -> None:
    await fill(desk.url, many_letters(datetime.now(UTC), 120))
    page = await visit(desk.server, "/letters?q=is%3Apending", scripts=False)

    await page.get_by_role("main").locator("tbody a.row").first.click()
    await page.get_by_role("button", name="Review").first.click()
    await expect(page.get_by_role("status").first).to_contain_text("reviewed")
    await expect(page.get_by_role("main")).to_contain_text("reviewed")

    await page.goto("/letters?q=is%3Areviewed")
    await expect(page.get_by_role("main").locator("tbody tr")).to_have_count(1)


async def test_lists_have_pages(desk: Place, visit: Visit) -> None:
    await fill(desk.url, many_letters(datetime.now(UTC), 120))
    page = await visit(desk.server, "/letters", scripts=False)
    rows = page.get_by_role("main").locator("tbody a.row")
    seen: list[str] = []
    for _ in range(2):
        seen += [await rows.nth(n).get_attribute("href") or "" for n in range(await rows.count())]
        await page.get_by_role("link", name="Older").click()
    seen += [await rows.nth(n).get_attribute("href") or "" for n in range(await rows.count())]

    assert len(seen) == len({*seen}) == 120
