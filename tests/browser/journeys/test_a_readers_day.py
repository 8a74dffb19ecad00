"""A reader sees everything masked, changes nothing, and is told why a search is refused."""

from playwright.async_api import expect

from browser.conftest import Visit, watch_of
from browser.journeys.acting import orders
from browser.places import Place

CARD = "4111 1111 1111 1111"


async def test_a_readers_day(desk: Place, visit: Visit) -> None:
    desk.work()
    await orders(desk, 3, card=CARD)
    letters = [letter["id"] for letter in await desk.died(3)]
    reader = await desk.token("reader", name="trainee")
    page = await visit(desk.server, "/", token=reader)

    for path in (
        "/",
        "/groups",
        "/letters",
        f"/letters/{letters[0]}",
        "/replays",
        "/queues",
        "/audit",
    ):
        await page.goto(path)
        main = page.get_by_role("main")
        await expect(main).to_be_visible()
        assert CARD not in await page.content(), path
        acts = main.locator("button:not([aria-disabled=true])")
        forms = main.locator("form[method=post]")
        assert await forms.count() == 0, f"{path}: {await forms.all_inner_texts()}"
        for number in range(await acts.count()):
            name = await acts.nth(number).inner_text()
            assert not name.startswith(("Discard", "Purge", "Review", "Close", "Edit", "Send")), (
                path
            )

    await page.goto(f"/letters/{letters[0]}")
    refused = page.get_by_role("button", name="Review")
    await expect(refused.first).to_have_attribute("aria-disabled", "true")
    await refused.first.click(force=True)
    await page.keyboard.press("w")
    async with desk.api() as api:
        assert (await api.get(f"/letters/{letters[0]}")).json()["head"]["state"] == "pending"

    with watch_of(page).allowing("403", "400"):
        await page.goto(f"/letters/{letters[0]}/edit")
        await expect(page.locator("#problem")).to_contain_text("operator")
        await page.goto("/letters?q=body.token%3Aa*")
        refused = page.get_by_role("alert").filter(has_text="masked for you")
        await expect(refused).to_be_visible()


async def test_the_limited_see_their_mailboxes_only(desk: Place, visit: Visit) -> None:
    desk.work()
    await orders(desk, 3)
    await desk.send("mails", [b"nobody is there"])
    await desk.died(4)
    limited = await desk.token("operator", "mails", name="mailer")
    page = await visit(desk.server, "/", token=limited)

    for path in ("/", "/groups", "/letters", "/queues", "/audit"):
        await page.goto(path)
        await expect(page.get_by_role("main")).to_be_visible()
        assert "TimeoutError" not in await page.get_by_role("main").inner_text(), path
    await page.goto("/letters")
    await expect(page.get_by_role("main")).to_contain_text("nobody is there")
