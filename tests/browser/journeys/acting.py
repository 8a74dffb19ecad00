"""What people do in every journey: read the notice, open a dialog, count their acts."""

from typing import Any

from playwright.async_api import Locator, Page, expect

from browser.places import Place


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


async def orders(place: Place, count: int, **more: Any) -> None:
    """Send orders of customers in Switzerland, numbered from 1."""
    await place.send(
        "orders",
        [
            {"id": f"o-{number}", "amount": 5 + number, "country": "CH", **more}
            for number in range(1, count + 1)
        ],
    )


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
        answer = await api.get("/audit", params={"limit": "1000", **asked})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["entries"]
    return found
