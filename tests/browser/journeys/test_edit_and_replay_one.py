"""Edit one letter and send it back: it is checked while one types, and its story grows."""

import json

import pytest
from playwright.async_api import Page, expect

from browser.conftest import Visit, watch_of
from browser.journeys.acting import (
    arrive,
    audit_of,
    dialog,
    heading,
    notice,
    opened_by_key,
    plan,
    send,
    tab_to,
    told,
)
from browser.places import Place
from servers.fixtures import needing_postgresql


@pytest.fixture(params=["sqlite", needing_postgresql()])
def office_url(request: pytest.FixtureRequest, office_url: str) -> str:
    if request.param == "sqlite":
        return office_url
    return str(request.getfixturevalue("postgresql_url"))


async def broken_order(desk: Place) -> str:
    """Let one order die of an amount that is text, and return its letter."""
    desk.work()
    await desk.send("orders", [{"id": "o-17", "amount": "many"}])
    [letter] = await desk.died(1)
    return str(letter["id"])


async def type_body(page: Page, amount: int) -> None:
    body = page.get_by_role("textbox", name="Body")
    await body.fill(json.dumps({"id": "o-17", "amount": amount}))


async def test_edit_and_replay_one(desk: Place, visit: Visit) -> None:
    letter = await broken_order(desk)
    page = await visit(desk.server, f"/letters/{letter}")
    await expect(heading(page)).to_contain_text("Malformed")

    await page.keyboard.press("e")  # 1
    await arrive(page, "Edit letter")
    await type_body(page, 500)  # 2
    changes = page.locator("#changes")
    await expect(changes.locator("ins")).to_contain_text(["500"])
    await expect(changes.locator("del")).to_contain_text(["many"])
    await page.get_by_label("Reason").fill("amount was text")  # 3
    await page.get_by_role("button", name="Save and plan replay").click()  # 4

    await plan(page, "amount was text")  # 5, 6
    await send(page, "Send")  # 7, 8
    await told(page, "1 handled")

    await page.goto(f"/letters/{letter}")
    story = page.locator(".story")
    for text in ("edit", "replay", "handled"):
        await expect(story).to_contain_text(text)
    await expect(heading(page)).to_contain_text("replayed")
    acts = [entry["action"] for entry in await audit_of(desk, target=letter)]
    assert "edit" in acts


async def test_what_somebody_else_saved_first_is_kept(desk: Place, visit: Visit) -> None:
    letter = await broken_order(desk)
    page = await visit(desk.server, f"/letters/{letter}/edit")
    async with desk.api(await desk.token("operator", name="backend")) as api:
        seen = await api.get(f"/letters/{letter}")
        saved = await api.patch(
            f"/letters/{letter}",
            json={"json": {"id": "o-17", "amount": 1}, "reason": "a guess"},
            headers={"if-match": seen.headers["etag"]},
        )
        assert saved.status_code == 200, saved.text

    await type_body(page, 500)
    await expect(page.locator("#changes ins")).to_contain_text(["500"])
    with watch_of(page).allowing("412"):
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_text("has changed meanwhile")).to_be_visible()
    await expect(page.get_by_role("textbox", name="Body")).to_have_value(
        '{"id": "o-17", "amount": 500}'
    )

    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(notice(page)).to_contain_text("edited")
    async with desk.api() as api:
        body = (await api.get(f"/letters/{letter}/body")).json()
    assert body["amount"] == 500


async def test_it_can_be_done_with_the_keyboard_alone(desk: Place, visit: Visit) -> None:
    letter = await broken_order(desk)
    page = await visit(desk.server, f"/letters/{letter}")

    await page.keyboard.press("e")
    await arrive(page, "Edit letter")
    body = page.get_by_role("textbox", name="Body")
    await tab_to(page, body)
    await page.keyboard.press("ControlOrMeta+a")
    await page.keyboard.type('{"id": "o-17", "amount": 500}')
    await expect(page.locator("#changes ins")).to_contain_text(["500"])
    await tab_to(page, page.get_by_role("button", name="Save and plan replay"))
    await page.keyboard.press("Enter")
    await arrive(page, "Plan a replay")
    await tab_to(page, page.get_by_label("Reason"))
    await page.keyboard.type("amount was text")
    await tab_to(page, page.get_by_role("button", name="Choose these letters"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#preview")).to_contain_text("Send")
    await page.wait_for_load_state()
    await opened_by_key(page, page.locator("#preview").get_by_role("button", name="Send"))
    await tab_to(page, dialog(page).get_by_role("button", name="Send"))
    await page.keyboard.press("Enter")
    await told(page, "1 handled")
