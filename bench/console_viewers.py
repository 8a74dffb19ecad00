"""A hundred people who look at the overview, as the scripts of the page do."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx

VIEWERS: Final = 100
_LIVE: Final = re.compile(
    r'<div id="[^"]*" data-live="([^"]*)" data-every="([\d.]+)"[^>]*?hx-get="([^"]+)"'
)
_HEADERS: Final = {
    "accept": "text/html",
    "accept-encoding": "gzip",
    "hx-request": "true",
    "sec-fetch-site": "same-origin",
}


@asynccontextmanager
async def watched(port: int) -> AsyncIterator[None]:
    """Have a hundred viewers look at the overview meanwhile."""
    base = f"http://127.0.0.1:{port}"
    limits = httpx.Limits(max_connections=3 * VIEWERS, max_keepalive_connections=3 * VIEWERS)
    async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits) as client:
        page = await client.get("/", headers={"accept": "text/html"})
        parts = [
            (frozenset(events.split()), float(every), path.replace("&amp;", "&"))
            for events, every, path in _LIVE.findall(page.text)
        ]
        if not parts:
            raise SystemExit("the overview has no live parts")
        tasks = [asyncio.create_task(_view(client, parts)) for _ in range(VIEWERS)]
        await asyncio.sleep(2)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _view(client: httpx.AsyncClient, parts: list[tuple[frozenset[str], float, str]]) -> None:
    """Listen, and load the parts that an event is about, each as often as it may be."""
    dirty: set[str] = set()
    tags: dict[str, str] = {}

    async def load(every: float, path: str) -> None:
        while True:
            await asyncio.sleep(every)
            if path not in dirty:
                continue
            dirty.discard(path)
            asked = {**_HEADERS, "hx-ptag": tags.get(path, "none")}
            answer = await client.get(path, headers=asked)
            tags[path] = answer.headers.get("hx-ptag", "none")

    async with asyncio.TaskGroup() as group:
        for _, every, path in parts:
            group.create_task(load(every, path))
        async with client.stream("GET", "/api/v1/events", timeout=None) as events:
            async for line in events.aiter_lines():
                if line.startswith("event:"):
                    name = line.removeprefix("event:").strip()
                    dirty |= {path for wanted, _, path in parts if name in wanted}
