"""What a browser sees of the console, on a processor four times slower."""

import shutil
import sys
from typing import Final

from playwright.async_api import async_playwright

from contest import BENCH
from report import Row

sys.path.append(str(BENCH.parent / "tests"))

from browser.chromium import launch
from browser.watching import NOTES, shift_of

SLOWER: Final = 4
_PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
_KEYS: Final = """
globalThis.__slowest = 0;
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries())
    globalThis.__slowest = Math.max(globalThis.__slowest, duration);
}).observe({ type: "event", durationThreshold: 16, buffered: true });
"""


async def look(base: str, paths: list[str]) -> list[Row]:
    """Open each page twice, press keys, and return the worst of them all."""
    if shutil.which("chromium") is None:
        print("left out: what a browser sees; there is no Chromium")
        return []
    painted: dict[str, float] = {}
    slowest: dict[str, float] = {}
    shifted: dict[str, float] = {}
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        page = await browser.new_page(base_url=base, viewport={"width": 1280, "height": 900})
        await page.add_init_script(NOTES + _KEYS)
        session = await page.context.new_cdp_session(page)
        await page.goto("/")
        await session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        for path in paths:
            await page.goto(path)
            await page.wait_for_timeout(700)
            painted[path] = await page.evaluate(_PAINTED)
            for key in "jjk":
                await page.keyboard.press(key)
            await page.wait_for_timeout(200)
            slowest[path] = await page.evaluate("globalThis.__slowest")
            shifted[path], _ = await shift_of(page)
        await browser.close()

    def worst(what: str, found: dict[str, float], unit: str, target: float) -> Row:
        path = max(found, key=lambda one: found[one])
        shown = f"{what}, worst of {len(found)} pages: {path}"
        return Row(workload=shown, value=round(found[path], 3), unit=unit, target=target)

    return [
        worst("layout shift", shifted, "", 0),
        worst(f"first content on a processor {SLOWER} times slower", painted, "ms", 400),
        worst("key to next paint", slowest, "ms", 100),
    ]
