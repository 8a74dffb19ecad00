"""
Screenshots of every screen: `make pictures`.

    python -m browser.pictures [--only many] [--width 1440]

All of them go to .pictures, by state of the office, page, colours and width; the few that
the documentation shows go to docs/pictures.
"""

import argparse
import asyncio
import base64
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
from playwright.async_api import Browser, Page, async_playwright

from browser.chromium import launch
from browser.crawling import crawl
from browser.offices import HOSTILE_WORDS, STATES, busy, fill, letters_of
from browser.places import Place
from browser.processes import ROOT, Serve

ALL: Final = ROOT / ".pictures"
DOCS: Final = ROOT / "docs" / "pictures"
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1440, 1024, 375)
HEIGHT: Final = 900
QUALITY: Final = 82  # of a picture in the documentation
SHOWN: Final = {
    "console-overview": ("/", "light"),
    "console-groups": ("/groups", "light"),
    "console-group": ("/groups/{fp}", "light"),
    "console-letter": ("/letters/{id}", "dark"),
    "console-replay": ("/replays/{name}", "light"),
}
"""Pictures of the documentation: the route, and the colours."""


@asynccontextmanager
async def served(state: str) -> AsyncIterator[tuple[Serve, dict[str, str]]]:
    """Serve an office in a state, and give its pages by their kind."""
    folder = Path(tempfile.mkdtemp(prefix="dlq-pictures-"))
    place = Place(folder, "sqlite:///shop.db")  # below the folder, which is nobody's business
    try:
        await fill(f"sqlite:///{folder}/shop.db", letters_of(state, datetime.now(UTC)))
        server = place.serve()
        if state in {"many", "hostile"}:
            async with place.api() as api:
                await busy(api, words=HOSTILE_WORDS if state == "hostile" else ())
        async with httpx.AsyncClient(base_url=server.url) as client:
            found = await crawl(client, server.first_token)
        kinds = {kind: pages[0] for kind, pages in sorted(found.pages.items()) if "&" not in kind}
        yield server, kinds
    finally:
        place.end()
        shutil.rmtree(folder, ignore_errors=True)


async def draw(browser: Browser, state: str, widths: tuple[int, ...]) -> None:
    """Take pictures of all pages of an office."""
    async with served(state) as (server, kinds):
        for scheme in SCHEMES:
            for width in widths:
                page = await _page(browser, server, scheme, width)
                for kind, address in kinds.items():
                    await page.goto(address)
                    await page.wait_for_timeout(250)  # parts that are loaded by themselves
                    file = ALL / state / f"{_file(kind)}-{scheme}-{width}.png"
                    await page.screenshot(path=file, full_page=True)
                await page.context.close()
        print(f"{state}: {len(kinds)} pages, {len(kinds) * len(SCHEMES) * len(widths)} pictures")
        if state == "many":
            await _for_docs(browser, server, kinds)


async def _for_docs(browser: Browser, server: Serve, kinds: dict[str, str]) -> None:
    for name, (kind, scheme) in SHOWN.items():
        if kind not in kinds:
            print(f"left out: {name}, there is no page {kind}")
            continue
        page = await _page(browser, server, scheme, 1280)
        await page.goto(kinds[kind])
        await page.wait_for_timeout(500)
        session = await page.context.new_cdp_session(page)
        wish = {"format": "webp", "quality": QUALITY}
        taken = await session.send("Page.captureScreenshot", wish)
        (DOCS / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
        await page.context.close()


async def _page(browser: Browser, server: Serve, scheme: str, width: int) -> Page:
    context = await browser.new_context(
        base_url=server.url,
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    )
    page = await context.new_page()
    await page.goto("/sign-in")
    await page.get_by_label("Token").fill(server.first_token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_load_state()
    return page


def _file(kind: str) -> str:
    return re.sub(r"[^\w]+", "-", kind).strip("-") or "overview"


async def main() -> None:
    """Take all pictures, or those of one state."""
    parser = argparse.ArgumentParser(description="Screenshots of every screen.")
    parser.add_argument("--only", choices=STATES, action="append")
    parser.add_argument("--width", type=int, action="append")
    asked = parser.parse_args()
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        for state in asked.only or STATES:
            await draw(browser, state, tuple(asked.width or WIDTHS))
        await browser.close()
    print(f"in {ALL.relative_to(ROOT)}/")


if __name__ == "__main__":
    asyncio.run(main())
