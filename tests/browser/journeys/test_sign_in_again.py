"""The session ends while somebody types: they sign in over the page, and nothing is lost."""

from playwright.async_api import Page, expect

from browser.conftest import Visit, watch_of
from browser.journeys.acting import arrive, dialog, notice
from browser.places import Place


async def test_nothing_typed_is_lost_when_a_session_ends(desk: Place, visit: Visit) -> None:
    page, token = await _discarding(desk, visit)
    with watch_of(page).allowing("401"):
        await end_sessions(desk)
        await dialog(page).get_by_role("button", name="Discard").click()
        door = page.get_by_role("dialog", name="Sign in to go on")
        await door.get_by_label("Token").fill("wrong")
        await door.get_by_role("button", name="Sign in").click()
        await expect(door.get_by_role("alert")).to_contain_text("not valid")
        await door.get_by_label("Token").fill(token)
        await door.get_by_role("button", name="Sign in").click()
    await expect(door).to_be_hidden()

    reason = dialog(page).locator("[name=reason]")
    await expect(reason).to_have_value("a test order")
    await expect(dialog(page).get_by_role("alert")).to_be_empty()
    await dialog(page).get_by_role("button", name="Discard").click()
    await expect(notice(page)).to_contain_text("discarded")
    # Limited tokens hear of no acts: the page follows because it has sent one.
    await expect(page.locator("#head .badge").first).to_contain_text("discarded", timeout=5_000)


async def test_a_page_of_somebody_else_is_loaded_anew(desk: Place, visit: Visit) -> None:
    page, _ = await _discarding(desk, visit)
    with watch_of(page).allowing("401"):
        await end_sessions(desk)
        await dialog(page).get_by_role("button", name="Discard").click()
        door = page.get_by_role("dialog", name="Sign in to go on")
        await door.get_by_label("Token").fill(desk.server.first_token)
        await door.get_by_role("button", name="Sign in").click()
    await expect(page.locator("details.menu summary bdi")).to_have_text("first-administrator")
    await expect(page.locator("dialog[open]")).to_have_count(0)


async def _discarding(desk: Place, visit: Visit) -> tuple[Page, str]:
    """Let somebody with one mailbox type a reason to discard a letter; return the page, too."""
    desk.work()
    await desk.send("orders", [{"id": "o-1", "amount": "many"}])
    [letter] = await desk.died(1)
    token = await desk.token("operator", "orders", name="olga")
    page = await visit(desk.server, f"/letters/{letter['id']}", token=token)
    await arrive(page, "Malformed")
    await page.keyboard.press("d")
    await dialog(page).locator("[name=reason]").fill("a test order")
    return page, token


async def end_sessions(place: Place) -> None:
    """End all sessions, as an administrator does."""
    async with place.api() as api:
        for session in (await api.get("/sessions")).json():
            ended = await api.delete(f"/sessions/{session['id']}")
            assert ended.status_code < 300, ended.text
