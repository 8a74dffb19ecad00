"""A browser with windows, to open the console in; never one in the terminal."""

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, Protocol

_IN_TERMINALS: Final = frozenset(
    {"w3m", "lynx", "links", "links2", "elinks", "browsh", "carbonyl", "www-browser"}
)


class Opens(Protocol):
    """A browser, as the module webbrowser knows it."""

    def open(self, url: str) -> bool:
        """Open a page."""


def find_browser(
    environ: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Opens | None:
    """Return the browser of this desktop; None without a desktop, or if it is in the terminal."""
    has_desktop = (
        system in {"darwin", "win32"} or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    )
    if not has_desktop:
        return None
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    name = PurePath(str(getattr(found, "name", ""))).name
    return None if name in _IN_TERMINALS else found


def open_page(url: str) -> bool:
    """Open a page in the browser of this desktop; return False if there is none."""
    found = find_browser()
    if found is None:
        return False
    # The browser is a process of its own, and its start can take seconds.
    threading.Thread(target=found.open, args=(url,), daemon=True).start()
    return True
