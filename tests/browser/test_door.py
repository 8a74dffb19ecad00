"""The door in a browser: signing in with a token and with the link, and out again."""

from playwright.async_api import expect

from browser.conftest import Visit, watch_of
from browser.places import Place


async def test_the_link_of_the_first_start_signs_in_once(desk: Place, visit: Visit) -> None:
    link = desk.server.link
    page = await visit(desk.server, link.removeprefix(desk.server.url), token="")

    await expect(page.get_by_role("heading", level=1)).to_have_text("No open letters")
    assert "#" not in page.url

    other = await visit(desk.server, token="")
    with watch_of(other).allowing("401"):
        await other.goto(link)
        await expect(other.get_by_role("alert")).to_contain_text("not valid")


async def test_signing_in_leads_back_and_signing_out_ends_it(desk: Place, visit: Visit) -> None:
    page = await visit(desk.server, "/letters?q=is%3Aopen")
    assert page.url.endswith("/letters?q=is%3Aopen")

    await page.locator("details.menu summary", has_text="first").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_an_empty_office_teaches(desk: Place, visit: Visit) -> None:
    page = await visit(desk.server)

    await expect(page.get_by_role("heading", level=1)).to_have_text("No open letters")
    await expect(page.get_by_role("main").locator("code").first).to_contain_text("dlq")


async def test_the_server_may_go_and_come_back(desk: Place, visit: Visit) -> None:
    page = await visit(desk.server)
    sign = page.get_by_role("button", name="live")
    await expect(sign).to_have_text("live")

    port = int(desk.server.url.rpartition(":")[2])
    with watch_of(page).allowing("net::ERR_", "Failed to fetch"):
        desk.server.end()
        await expect(sign).to_contain_text("not live since", timeout=20_000)
        desk.serve(port=port)
        await expect(sign).to_have_text("live", timeout=40_000)
