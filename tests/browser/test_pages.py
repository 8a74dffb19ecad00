"""
Every page in every state of the office, light and dark, wide and narrow.

No page breaks its policy, complains in the console, asks another server, moves its
layout by itself, scrolls sideways, or has anything that axe finds wrong.
"""

import pytest
from playwright.async_api import Page, expect

from browser.accessibility import violations
from browser.conftest import Office, Scheme, Visit, settled, watch_of
from browser.crawling import ELSEWHERE, kind_of, page_routes
from browser.offices import STATES
from browser.watching import canary_of, shift_of

LOOKS: tuple[tuple[Scheme, int], ...] = (
    ("light", 1280),
    ("dark", 1280),
    ("light", 375),
    ("dark", 375),
)
_FEW = STATES[:2] + STATES[3:]  # states that are looked at in two ways only


@pytest.mark.parametrize("office", STATES, indirect=True)
async def test_every_link_leads_to_a_page_that_is_well_formed(office: Office) -> None:
    assert office.found.problems == []


@pytest.mark.parametrize("office", ["many"], indirect=True)
async def test_every_page_of_the_routes_can_be_reached(office: Office) -> None:
    reached = office.found.routes | ELSEWHERE.keys()
    assert [path for path in page_routes() if path not in reached] == []


_TURNS = [
    pytest.param(state, scheme, width, id=f"{state}-{scheme}-{width}")
    for state in STATES
    for scheme, width in (LOOKS if state not in _FEW else (LOOKS[0], LOOKS[3]))
]


@pytest.mark.parametrize(("office", "scheme", "width"), _TURNS, indirect=["office"])
async def test_pages_keep_the_rules(
    office: Office, scheme: Scheme, width: int, visit: Visit
) -> None:
    page = await visit(office.server, scheme=scheme, width=width)
    wrong: list[tuple[str, str]] = []
    for address in office.found.addresses:
        await page.goto(address)
        await settled(page)
        wrong += [(address, one) for one in await broken_rules(page)]

    assert wrong == [], summary(wrong)


@pytest.mark.parametrize(
    ("office", "scheme", "width"),
    [("many", "light", 1280), ("many", "dark", 375)],
    indirect=["office"],
)
async def test_dialogs_and_menus_keep_the_rules(
    office: Office, scheme: Scheme, width: int, visit: Visit
) -> None:
    page = await visit(office.server, scheme=scheme, width=width)
    seen: set[str] = set()
    wrong: list[tuple[str, str]] = []
    for address in office.found.addresses:
        await page.goto(address)
        for url in await openers(page):
            if kind_of(url) in seen:
                continue
            seen.add(kind_of(url))
            wrong += [(f"{address} {url}", one) for one in await look_into(page, url)]

    assert wrong == [], summary(wrong)


def summary(wrong: list[tuple[str, str]]) -> str:
    """Return each problem once, with the pages that have it."""
    by_problem: dict[str, list[str]] = {}
    for address, problem in wrong:
        by_problem.setdefault(problem, []).append(address)
    return "\n".join(
        f"{problem}\n    on {len(pages)}: {', '.join(pages[:4])}"
        for problem, pages in by_problem.items()
    )


async def openers(page: Page) -> list[str]:
    """Return what the buttons of a page that open a dialog load."""
    found: list[str] = await page.locator(
        ":is(a, button)[hx-get][hx-target='#dialog-body']:visible"
    ).evaluate_all("(all) => all.map((one) => one.getAttribute('hx-get'))")
    return found


async def look_into(page: Page, url: str) -> list[str]:
    """Open a dialog and look at it; the focus returns to what opened it."""
    button = page.locator(f':is(a, button)[hx-get="{url}"]:visible').first
    await button.click()
    dialog = page.locator("dialog[open]")
    await expect(dialog).to_be_visible()
    found = await violations(page)
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    if not await button.evaluate("(one) => one === document.activeElement"):
        found.append("the focus did not return to the button")
    return found


async def broken_rules(page: Page) -> list[str]:
    """Return which rules the page that is shown breaks."""
    wrong = await violations(page)
    shift, of = await shift_of(page)
    if shift:  # it counts if it is the page's: on a busy machine a page arrives in pieces
        await page.reload()
        await settled(page)
        shift, of = await shift_of(page)
    if shift:
        wrong.append(f"the layout shifted by {shift}: {of[:3]}")
    if await canary_of(page) is not None:
        wrong.append("hostile text has run")
    twice = await page.evaluate(
        "[...document.querySelectorAll('[id]')].map((one) => one.id)"
        ".filter((id, at, all) => all.indexOf(id) !== at)"
    )
    if twice:
        wrong.append(f"ids are used twice: {twice}")
    wide = await page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    if wide[0] > wide[1]:
        wrong.append(f"the page scrolls sideways: {wide[0]} px of {wide[1]}: {await _widest(page)}")
    watch = watch_of(page)
    wrong += watch.problems
    watch.problems.clear()
    return wrong


async def _widest(page: Page) -> list[str]:
    found: list[str] = await page.evaluate(
        """[...document.querySelectorAll("main *, .top *, footer *")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
        .filter((one) => !one.parentElement.closest(".table, pre, [tabindex='0']"))
        .slice(0, 3).map((one) => one.outerHTML.slice(0, 160))"""
    )
    return found
