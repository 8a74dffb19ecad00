"""The keys: their list says what the page has, and each of them does what it says."""

from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.journeys.acting import arrive, dialog
from browser.places import Place


async def listed(page: Page) -> list[str]:
    """Open the list of keys, return the lines about this page, and close it."""
    await page.keyboard.press("?")
    lines = dialog(page).locator("[data-of-page] li:visible")
    await expect(lines.first).to_be_visible()
    found = [" ".join(text.split()) for text in await lines.all_inner_texts()]
    await page.keyboard.press("Escape")
    return found


async def test_the_list_of_keys_has_what_the_page_has(place: Place, visit: Visit) -> None:
    server = place.serve(access="off")
    place.work()
    await place.send("orders", [{"id": "o-1", "amount": "many"}])
    [letter] = await place.died(1)

    page = await visit(server, "/letters")
    rows = await listed(page)
    await page.goto(f"/letters/{letter['id']}")
    of_letter = await listed(page)

    assert {"next, previous row j k", "choose, up to here, all x X *", "Discard d"} <= {*rows}
    assert not [line for line in rows if line.startswith(("Edit", "indent", "pause the"))]
    assert {"Edit e", "Copy the id i", "Compare with… c", "newer [", "Body 1"} <= {*of_letter}
    assert not [line for line in of_letter if line.startswith(("choose", "next, previous"))]

    await page.keyboard.press("c")  # its link is in a closed menu
    await arrive(page, "Compare")


async def test_a_field_is_indented_without_losing_the_tab_key(place: Place, visit: Visit) -> None:
    server = place.serve(access="off")
    place.work()
    await place.send("orders", [{"id": "o-1", "amount": "many"}])
    [letter] = await place.died(1)
    page = await visit(server, f"/letters/{letter['id']}/edit")
    body = page.locator("textarea[name=body]")
    await body.fill('{\n"id": 1\n}')
    await body.evaluate("(field) => field.setSelectionRange(3, 3)")
    await page.keyboard.press("Control+]")

    await expect(body).to_have_value('{\n  "id": 1\n}')
    await page.keyboard.press("Tab")
    await expect(body).not_to_be_focused()
