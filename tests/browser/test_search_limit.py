"""Somebody who has searched too much: parts of a page say so in their place."""

from datetime import UTC, datetime

from playwright.async_api import expect

from browser.conftest import Visit, watch_of
from browser.offices import fill, letters_of
from browser.places import Place


async def test_values_of_letters_that_have_to_wait_say_so_in_their_place(
    place: Place, visit: Visit
) -> None:
    await fill(place.url, letters_of("many", datetime.now(UTC)))
    server = place.serve(access="off", search_share=0.001)  # used up by the first search
    page = await visit(server, "/groups")
    await page.locator("table a.row").first.click()
    await expect(page.locator(".deferred")).to_have_count(0)

    with watch_of(page).allowing("429"):
        await page.reload()
        await expect(page.locator("main .problem")).to_contain_text("Try again in")

    await expect(page.locator("#problem")).to_be_empty()
