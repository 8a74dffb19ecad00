"""Chromium of the system: where it is, and how it is started."""

import os
import shutil
from typing import Final

from playwright.async_api import Browser, Playwright

from servers import Missing

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the path of the browser; raise Missing if there is none."""
    for name in (os.environ.get("DLQ_TEST_CHROMIUM", ""), *_NAMES):
        if name and (found := shutil.which(name)):
            return found
    raise Missing("no Chromium here: run `make services`, or set DLQ_TEST_CHROMIUM")


async def launch(playwright: Playwright) -> Browser:
    """Start the browser, without a window and without a request of its own."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # it refuses to have one for root
    quiet = ["--disable-background-networking", "--disable-component-update"]
    return await playwright.chromium.launch(
        executable_path=find_chromium(), args=[*sandbox, *quiet]
    )
