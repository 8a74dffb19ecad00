"""An outage on the chart: its span is dragged, and what died in it is sent back."""

from contextlib import suppress

from playwright.async_api import Page, expect

from browser.conftest import Visit
from browser.journeys.acting import orders, plan, send, told
from browser.places import Place


async def test_outage_window(desk: Place, visit: Visit) -> None:
    worker = desk.work("1.8.0")
    await orders(desk, 60)
    await desk.died(60)
    worker.end()
    desk.work("1.8.1")

    page = await visit(desk.server, "/?span=1h")
    await drag_over(page)  # 1
    found = page.locator(".span-found")
    await expect(found).to_contain_text("60 deaths")
    await expect(found).to_contain_text("TimeoutError")
    await found.get_by_role("link", name="Plan replay of 60 letters").click()  # 2
    await page.get_by_role("radio", name="Steady").check()  # 3
    await page.get_by_label("A second").fill("50")  # 4
    await plan(page, "the bank was down")  # 5, 6
    await send(page, "Send")  # 7, 8
    await told(page, "60 handled")


async def drag_over(page: Page) -> None:
    """Drag over the right half of the chart, again if the page above it has grown meanwhile."""
    for _ in range(3):
        await _drag(page)
        with suppress(AssertionError):
            await expect(page.locator(".span-found")).to_be_visible(timeout=5_000)
            return
    raise AssertionError("dragging over the chart chooses no span")


async def _drag(page: Page) -> None:
    chart = page.locator(".chart-over")
    await chart.scroll_into_view_if_needed()
    box = await chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=5)
    await page.mouse.move(box["x"] + box["width"] - 2, middle, steps=5)
    await page.mouse.up()


async def test_a_span_is_chosen_with_the_keys(desk: Place, visit: Visit) -> None:
    desk.work("1.8.0")
    await orders(desk, 5)
    await desk.died(5)

    page = await visit(desk.server, "/?span=1h")
    first = page.get_by_role("slider", name="Beginning of the span")
    await first.focus()
    await page.keyboard.press("Home")
    await page.keyboard.press("Enter")
    await expect(page.locator(".span-found")).to_contain_text("5 deaths")
