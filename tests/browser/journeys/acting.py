"""What people do in every journey: read the notice, open a dialog, count their acts."""

from contextlib import suppress
from typing import Any, Final

from playwright.async_api import Locator, Page, expect

from browser.places import Place

LONG: Final = 60_000.0  # milliseconds in which a replay ends


def notice(page: Page) -> Locator:
    """Return the place where the console says what was done."""
    return page.locator("#notice")


def problem(page: Page) -> Locator:
    """Return the place where the console says what was refused."""
    return page.locator("#problem")


def dialog(page: Page) -> Locator:
    """Return the dialog that is open."""
    return page.locator("dialog[open]")


def heading(page: Page) -> Locator:
    """Return the sentence that a page begins with."""
    return page.get_by_role("heading", level=1)


async def arrive(page: Page, text: str) -> None:
    """Wait for the page whose heading has this text, and for its scripts."""
    await expect(heading(page)).to_contain_text(text)
    await page.wait_for_load_state()


async def press(page: Page, keys: str) -> None:
    """Press the keys of a shortcut, one after the other."""
    for key in keys.split():
        await page.keyboard.press(key)


async def tab_to(page: Page, target: Locator, *, most: int = 120) -> None:
    """Press Tab until the focus is on something; fail if it cannot be reached."""
    await expect(target).to_be_visible()
    for _ in range(most):
        if await target.evaluate("(one) => one === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {target}")


async def opened_by_key(page: Page, button: Locator) -> None:
    """Open a dialog with the keyboard, again if the page drew the button anew meanwhile."""
    for _ in range(3):
        await tab_to(page, button)
        await page.keyboard.press("Enter")
        with suppress(AssertionError):
            await expect(dialog(page)).to_be_visible(timeout=5_000)
            return
    raise AssertionError(f"{button} opens no dialog")


async def orders(
    place: Place, count: int, *, first: int = 1, headers: Any = None, **more: Any
) -> None:
    """Send orders of customers in Switzerland, with numbers from `first` on."""
    bodies = [
        {"id": f"o-{number}", "amount": 5 + number, "country": "CH", **more}
        for number in range(first, first + count)
    ]
    options = {"headers": headers} if headers else {}
    await place.send("orders", [(body, options) for body in bodies])


async def plan(page: Page, reason: str) -> None:
    """On the page of a new replay: say why, and have the letters judged."""
    await arrive(page, "Plan a replay")
    await page.get_by_label("Reason").fill(reason)
    await page.get_by_role("button", name="Choose these letters and judge them").click()
    await expect(page.locator("#preview")).to_contain_text("Send", timeout=LONG)
    await page.wait_for_load_state()


async def send(page: Page, step: str) -> None:
    """On the page of a plan: press the button that names the first step, and confirm it."""
    await page.locator("#preview").get_by_role("button", name=step).click()
    await dialog(page).get_by_role("button", name=step).click()


async def told(page: Page, text: str) -> None:
    """Wait until the page of a replay says this in its first sentence."""
    await expect(page.locator("#told")).to_contain_text(text, timeout=LONG)


async def group_of(place: Place, error: str) -> str:
    """Return the group with an error."""
    async with place.api() as api:
        groups = (await api.get("/groups")).json()["groups"]
    found = [one["fingerprint"] for one in groups if one["error_type"].endswith(error)]
    assert len(found) == 1, f"{len(found)} groups of {error}: {groups}"
    return str(found[0])


async def audit_of(place: Place, **asked: str) -> list[dict[str, Any]]:
    """Return the entries of the audit, oldest first."""
    async with place.api() as api:
        answer = await api.get("/audit", params={"limit": "500", **asked})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["entries"]
    return found
