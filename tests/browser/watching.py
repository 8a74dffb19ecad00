"""
What no page may do: break its own policy, complain in the console, ask other servers.

`Watch` notes all of it for the pages of one browser context. It also counts how far the
layout of a page shifted by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request

_CANARY: Final = "__canary"
NOTES: Final = """
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sample }) =>
  globalThis.__noteViolation?.(`${violatedDirective} ${blockedURI} ${sample}`));
globalThis.__shift = { value: 0, of: [] };
try {
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      globalThis.__shift.value += entry.value;
      for (const source of entry.sources ?? [])
        globalThis.__shift.of.push(source.node?.outerHTML?.slice(0, 160) ?? "?");
    }
  }).observe({ type: "layout-shift", buffered: true });
} catch {}
"""


class Watch:
    """Everything that the pages of a context did and must not do."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.problems: list[str] = []
        self._allowed: list[str] = []

    async def attach(self, context: BrowserContext) -> None:
        """Watch all pages that this context opens from now on."""
        await context.expose_function("__noteViolation", self._violation)
        await context.add_init_script(NOTES)
        context.on("console", self._console)
        context.on("weberror", lambda error: self._note("script", str(error.error)))
        context.on("request", self._request)
        context.on("dialog", lambda dialog: self._note("dialog", dialog.message))

    @contextmanager
    def allowing(self, *texts: str) -> Iterator[None]:
        """Allow problems with one of these texts in them, such as the status of a 404."""
        self._allowed += texts
        try:
            yield
        finally:
            for text in texts:
                self._allowed.remove(text)

    def check(self) -> None:
        """Fail if there was anything."""
        assert self.problems == [], "\n".join(self.problems)

    def _note(self, kind: str, text: str) -> None:
        if not any(one in text for one in self._allowed):
            self.problems.append(f"{kind}: {text}")

    def _violation(self, text: str) -> None:
        self._note("policy", text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            where = message.location
            self._note(
                message.type, f"{message.text} ({where.get('url')}:{where.get('lineNumber')})"
            )

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "about:", "blob:")):
            self._note("request", f"{request.method} {request.url}")


async def shift_of(page: Page) -> tuple[float, list[str]]:
    """
    Return how far the layout of a page shifted by itself, and what did.

    Less than 0.005 counts as none: a number that grows by a digit.
    """
    found: dict[str, Any] = await page.evaluate("globalThis.__shift")
    value = round(found["value"], 2)
    return value, found["of"] if value else []


async def canary_of(page: Page) -> object:
    """Return what hostile text would have set if it had run; None if nothing ran."""
    return await page.evaluate(f"globalThis.{_CANARY} ?? null")
