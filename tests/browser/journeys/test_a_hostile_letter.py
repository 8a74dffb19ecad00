"""A hostile letter is opened everywhere a letter can be: nothing runs, nothing moves."""

import csv
from datetime import UTC, datetime

import pytest
from playwright.async_api import Page, expect

from browser.conftest import Visit, settled, watch_of
from browser.payloads import BODIES, SCRIPTS, large_body
from browser.places import Place
from browser.watching import canary_of, shift_of
from deadletter import Message

MEMORY = 150_000_000  # bytes of the scripts of a tab


async def sent(desk: Place) -> list[str]:
    """Send hostile messages of all kinds and return their letters, newest first."""
    now = datetime.now(UTC)
    bodies = [*(body for body, _ in BODIES), large_body()]
    kinds = [*(kind for _, kind in BODIES), "application/json"]
    messages = [
        Message(
            id=f"m-{number} {SCRIPTS[number]}"[:200],
            body=body,
            sent_at=now,
            headers=((f"x-{number}", SCRIPTS[number + 1].encode()), ("content-encoding", b"gzip")),
            content_type=kind,
            key=SCRIPTS[number + 2][:100],
        )
        for number, (body, kind) in enumerate(zip(bodies, kinds, strict=True))
    ]
    await desk.send("parcels", messages)
    desk.work()
    return [letter["id"] for letter in await desk.died(len(messages))]


async def looked(page: Page, address: str) -> None:
    """Open a page and make sure that nothing has happened."""
    await page.goto(address)
    await settled(page)
    assert await canary_of(page) is None, address
    assert await shift_of(page) == (0, []), address


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_hostile_letter(desk: Place, visit: Visit, scheme: str) -> None:
    letters = await sent(desk)
    page = await visit(desk.server, "/letters", scheme=scheme)
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")

    await looked(page, "/letters")
    for number, letter in enumerate(letters):
        other = letters[number - 1]
        for address in (
            f"/letters/{letter}",
            f"/letters/{letter}?form=raw",
            f"/letters/{letter}?form=hex",
            f"/letters/{letter}/edit",
            f"/letters/{letter}/compare?with={other}",
            f"/palette?q={letter[:8]}",
        ):
            await looked(page, address)
            measured = await session.send("Performance.getMetrics")
            heap = {one["name"]: one["value"] for one in measured["metrics"]}["JSHeapUsedSize"]
            assert heap < MEMORY, f"{address}: {heap:,.0f} bytes"


async def test_revealing_runs_nothing_either(desk: Place, visit: Visit) -> None:
    letters = await sent(desk)
    page = await visit(desk.server)
    for letter in letters:
        await page.goto(f"/letters/{letter}")
        await page.get_by_role("button", name="Reveal").click()
        await expect(page.get_by_text("You see everything").first).to_be_visible()
        assert await canary_of(page) is None
    watch_of(page).check()


async def test_files_of_hostile_letters_are_never_shown(desk: Place, visit: Visit) -> None:
    letters = await sent(desk)
    page = await visit(desk.server)
    sheet = await page.request.get("/letters/sheet")
    async with desk.api() as api:
        body = await api.get(f"/letters/{letters[0]}/body")
    for headers in (sheet.headers, body.headers):
        assert headers["content-disposition"].startswith("attachment")
        assert "sandbox" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    rows = csv.reader((await sheet.text()).splitlines())
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
