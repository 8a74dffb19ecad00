"""axe on a page, and what it found in words."""

import json
from typing import Any, Final

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

_OPTIONS: Final = json.dumps(
    {
        "resultTypes": ["violations"],
        "runOnly": [
            *("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"),
            *("best-practice", "cat.aria"),
        ],
    }
)


async def violations(page: Page) -> list[str]:
    """Return what axe finds wrong with a page as it is now; empty is good."""
    if not await page.evaluate("'axe' in globalThis"):
        await page.evaluate(AXE_SCRIPT)
    found: dict[str, Any] = await page.evaluate(f"axe.run(document, {_OPTIONS})")
    return [f"{one['id']}: {one['help']}: {_nodes(one['nodes'])}" for one in found["violations"]]


def _nodes(nodes: list[dict[str, Any]]) -> str:
    shown = [f"{node['target']} {node['html'][:160]} {_why(node)}" for node in nodes[:3]]
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return "; ".join(shown) + more


def _why(node: dict[str, Any]) -> str:
    checks = [*node["any"], *node["all"], *node["none"]]
    return " ".join(check["message"] for check in checks[:2])
