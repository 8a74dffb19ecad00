"""
Screenshots of every screen: `make pictures`.

    python -m browser.pictures [--only many] [--width 1440]
    python -m browser.pictures --docs

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
from browser.furnished import RATE, furnish
from browser.offices import HOSTILE_WORDS, STATES, busy, fill, letters_of
from browser.places import Place
from browser.processes import ROOT, Serve

ALL: Final = ROOT / ".pictures"
DOCS: Final = ROOT / "docs" / "pictures"
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1440, 1024, 375)
HEIGHT: Final = 900
QUALITY: Final = 82  # of a picture in the documentation
LARGEST: Final = 80_000  # bytes
SHOWN: Final = ("console-overview", "console-group", "console-replay", "console-letter")
"""Pictures of the documentation; `_addresses` says of which pages."""


@asynccontextmanager
async def served(state: str) -> AsyncIterator[tuple[Serve, dict[str, str]]]:
    """Serve an office in a state, furnished if it has many letters; give its pages by kind."""
    folder = Path(tempfile.mkdtemp(prefix="dlq-pictures-"))
    place = Place(folder, "sqlite:///shop.db")  # below the folder, which is nobody's business
    try:
        if state == "many":
            server = await furnish(place)
        else:
            await fill(f"sqlite:///{folder}/shop.db", letters_of(state, datetime.now(UTC)))
            server = place.serve()
        if state == "hostile":
            async with place.api() as api:
                await busy(api, words=HOSTILE_WORDS)
        async with httpx.AsyncClient(base_url=server.url) as client:
            found = await crawl(client, server.first_token)
        kinds = {kind: pages[0] for kind, pages in sorted(found.pages.items()) if "&" not in kind}
        yield server, kinds
    finally:
        place.end()
        shutil.rmtree(folder, ignore_errors=True)


async def draw(browser: Browser, state: str, widths: tuple[int, ...]) -> None:
    """Take pictures of all pages of an office; of no width only those of the documentation."""
    async with served(state) as (server, kinds):
        if state == "many":
            await _for_docs(browser, server)
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


async def _for_docs(browser: Browser, server: Serve) -> None:
    async with server.client(server.first_token) as api:
        addresses = await _addresses(api)
    for name in SHOWN:
        page = await _page(browser, server, "light", 1440)
        await page.goto(addresses[name])
        await page.wait_for_timeout(500)
        session = await page.context.new_cdp_session(page)
        wish = {"format": "webp", "quality": QUALITY}
        taken = base64.b64decode((await session.send("Page.captureScreenshot", wish))["data"])
        assert len(taken) <= LARGEST, f"{name} has {len(taken):,} bytes"
        (DOCS / f"{name}.webp").write_bytes(taken)
        await page.context.close()
    print(f"{len(SHOWN)} pictures in {DOCS.relative_to(ROOT)}/")


async def _addresses(api: httpx.AsyncClient) -> dict[str, str]:
    """Return the pages of the documentation: a bug that is fixed, a replay, one of its letters."""
    groups = (await api.get("/groups", params={"limit": 50})).json()["groups"]
    group = next(one["fingerprint"] for one in groups if one["error_type"] == RATE[0])
    replays = (await api.get("/replays")).json()["replays"]
    replay = next(one["id"] for one in replays if one["state"] == "done")
    asked = {"query": "is:replayed", "limit": "1"}
    letter = (await api.get("/letters", params=asked)).json()["heads"][0]["id"]
    paths = ("/", f"/groups/{group}", f"/replays/{replay}", f"/letters/{letter}")
    return dict(zip(SHOWN, paths, strict=True))


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
    parser.add_argument("--docs", action="store_true", help="only those of the documentation")
    asked = parser.parse_args()
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        for state in ("many",) if asked.docs else asked.only or STATES:
            await draw(browser, state, () if asked.docs else tuple(asked.width or WIDTHS))
        await browser.close()
    print(f"in {ALL.relative_to(ROOT)}/")


if __name__ == "__main__":
    asyncio.run(main())
