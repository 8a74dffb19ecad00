"""
Hostile letters on every page: nothing runs, nothing is drawn that no template wrote.

The texts come in through a real worker, and through burials where every field is hostile.
"""

import asyncio
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.async_api import Page

from browser.conftest import Visit, settled, watch_of
from browser.payloads import HOSTILE, SCRIPTS
from browser.places import Place
from browser.prepared import Office
from browser.watching import canary_of

_LARGEST = 300_000  # bytes of HTML, whatever is in a letter
_TOGETHER = 4  # pages that are looked at at the same time

# What a hostile text would have to make to do anything at all.
_FOREIGN: Final = Path(__file__).with_name("foreign.js").read_text()


@pytest.mark.parametrize("office", ["hostile"], indirect=True)
async def test_hostile_letters_are_inert_on_every_page(office: Office, visit: Visit) -> None:
    addresses = [*office.found.addresses, *await _all_of(office.place)]

    assert await _looked_at(office, addresses, visit) == []


@pytest.mark.parametrize("office", ["hostile"], indirect=True)
async def test_hostile_addresses_are_inert(office: Office, visit: Visit) -> None:
    texts = [*SCRIPTS[::4], *HOSTILE[len(SCRIPTS) :: 3]]
    addresses = [
        f"{path}{quote(text.encode('utf-8', 'replace')[:200], safe='')}"
        for text in texts
        for path in ("/letters?q=", "/groups/", "/letters/", "/nowhere/", "/groups?source=")
    ]

    assert await _looked_at(office, addresses, visit, "400", "404", "409", "414") == []


async def test_errors_of_a_real_worker_are_inert(desk: Place, visit: Visit) -> None:
    desk.work()
    bodies = [text.encode("utf-8", "surrogatepass") for text in HOSTILE]
    await desk.send("mails", bodies)
    await desk.died(len(bodies))
    addresses = ["/", "/groups", "/letters", *await _all_of(desk)]

    assert await _looked_at(Office(desk.server, desk, None), addresses, visit) == []  # type: ignore[arg-type]


async def _all_of(place: Place) -> list[str]:
    """Return the pages of all letters and groups."""
    async with place.api() as api:
        letters = (await api.get("/letters", params={"limit": 200})).json()["heads"]
        groups = (await api.get("/groups", params={"limit": 200})).json()["groups"]
    ids = [letter["id"] for letter in letters]
    pages = [f"/groups/{group['fingerprint']}" for group in groups]
    for one, other in zip(ids, [*ids[1:], *ids[:1]], strict=True):
        pages += [f"/letters/{one}", f"/letters/{one}/edit", f"/letters/{one}/compare?with={other}"]
    return pages


async def _looked_at(
    office: Office, addresses: list[str], visit: Visit, *allowed: str
) -> list[str]:
    """Open all pages, several at a time, and return what is wrong with them."""
    queue = iter(addresses)
    wrong: list[str] = []
    first = await visit(office.server, "/")
    storage = await first.context.storage_state()

    async def look() -> None:
        page = await visit(office.server, "/", token="", storage_state=storage)
        with watch_of(page).allowing(*[f"status of {one}" for one in allowed]):
            for address in queue:
                wrong.extend([f"{address}: {one}" for one in await _wrong(page, address)])

    await asyncio.gather(*(look() for _ in range(_TOGETHER)))
    return wrong


async def _wrong(page: Page, address: str) -> list[str]:
    answer = await page.goto(address)
    assert answer is not None
    await settled(page)
    wrong: list[str] = list(await page.evaluate(_FOREIGN))
    if await canary_of(page) is not None:
        wrong.append("a text has run")
    if answer.status >= 500:
        wrong.append(f"the answer is {answer.status}")
    if (size := len(await answer.body())) > _LARGEST:
        wrong.append(f"{size:,} bytes of HTML")
    watch = watch_of(page)
    wrong += watch.problems
    watch.problems.clear()
    return wrong
