"""The rules of all templates, and that each of them renders whatever is in the office."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from jinja2 import nodes
from litestar import Litestar
from litestar.testing import AsyncTestClient

from browser.crawling import ELSEWHERE, crawl, page_routes
from browser.offices import HOSTILE_WORDS, STATES, busy, fill, letters_of
from deadletter.core.access import Role
from deadletter.server import console
from deadletter.server.app import build
from deadletter.server.console.gate import environment
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from deadletter.wiring.engines import open_engine
from server.conftest import context_of, token

CONSOLE: Final = Path(console.__file__).parent
TEMPLATES: Final = CONSOLE / "templates"
NAMES: Final = sorted(str(one.relative_to(TEMPLATES)) for one in TEMPLATES.rglob("*.html"))
SOURCES: Final = sorted(CONSOLE.rglob("*.py"))
SCRIPTS: Final = sorted((CONSOLE / "static" / "js").glob("*.js"))

# What htmx may be told by attributes; everything else is either unused or runs code.
HTMX: Final = {
    *("hx-get", "hx-post", "hx-target", "hx-swap", "hx-trigger", "hx-push-url", "hx-sync"),
    *("hx-indicator", "hx-headers:inherited", "hx-ptag", "hx-ignore", "hx-include"),
    *("hx-status:4xx:inherited", "hx-status:5xx:inherited", "hx-select", "hx-confirm"),
    *("hx-disable", "hx-disabled-elt", "hx-replace-url", "hx-swap-oob", "hx-preserve"),
}
FORBIDDEN: Final = {
    r"\|\s*safe\b": "a value that is not escaped",
    r"\bMarkup\b": "a value that is not escaped",
    r"autoescape\s+false": "values that are not escaped",
    r"\sstyle\s*=": "an inline style",
    r"<style\b": "an inline style",
    r"\son[a-z]+=[\"'{]": "an inline handler",
    r"\bhx-on\b": "an inline handler",
    r"\bhx-boost\b": "links that are not links",
    r"javascript:|\bjs:": "code in an attribute",
    r"hx-trigger=\"[^\"]*\[": "a filter of a trigger, which is code",
    r"https?://(?!www\.w3\.org/)": "an address of another server",
    r"target=\"_blank\"": "a new window",
    r"name=\"(form|elements|submit|method)\"": "a field that hides a property of its form",
}
WITH_MARKUP: Final = {"gate.py", "charts.py"}  # the only modules that may write HTML


@pytest.mark.parametrize("name", NAMES)
def test_templates_have_nothing_that_runs_or_is_not_escaped(name: str) -> None:
    text = (TEMPLATES / name).read_text()
    text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)

    assert [why for rule, why in FORBIDDEN.items() if re.search(rule, text)] == []
    scripts = re.findall(r"<script\b[^>]*>", text)
    assert all("src=" in script for script in scripts)


@pytest.mark.parametrize("name", NAMES)
def test_templates_use_only_the_known_attributes_of_htmx(name: str) -> None:
    used = set(re.findall(r"\s((?:hx|data-hx)-[a-z:0-9-]+)", (TEMPLATES / name).read_text()))
    used = {one for one in used if not re.fullmatch(r"hx-status:[0-9x]{3}(:inherited)?", one)}

    assert used - HTMX == set()


@pytest.mark.parametrize("name", NAMES)
def test_forms_that_post_carry_the_proof_of_the_session(name: str) -> None:
    text = (TEMPLATES / name).read_text()
    for form in re.findall(r"<form\b[^>]*method=\"post\".*?</form>", text, flags=re.DOTALL):
        assert "proof()" in form or "/sign-in" in form, form[:200]


def test_only_a_few_modules_write_html() -> None:
    found = {
        path.name
        for path in SOURCES
        if re.search(r"\bMarkup\(|\|safe|<(div|span|a|p|td|svg|script)\b", path.read_text())
    }

    assert found <= WITH_MARKUP


def test_escaping_cannot_be_switched_off() -> None:
    made = environment({"asset": str})

    assert made.autoescape is True
    for name in NAMES:
        tree = made.parse((TEMPLATES / name).read_text())
        assert not list(tree.find_all(nodes.ScopedEvalContextModifier)), name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_short_and_insert_no_html_and_run_no_text(path: Path) -> None:
    text = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    rules = (
        *(r"\.innerHTML\s*[+]?=", r"\.outerHTML\s*=", r"insertAdjacentHTML", r"document\.write"),
        *(
            r"\beval\(",
            r"new Function",
            r"setTimeout\(\s*[\"'`]",
            r"\.style\.\w+\s*=",
            r"https?://(?!www\.w3\.org/)",
        ),
    )

    assert [rule for rule in rules if re.search(rule, text)] == []
    assert len(path.read_text().splitlines()) <= 150


@asynccontextmanager
async def serving(
    state: str, tmp_path: Path
) -> AsyncIterator[tuple[AsyncTestClient[Litestar], ServerContext, str]]:
    url = f"sqlite:///{tmp_path}/{state}.db"
    await fill(url, letters_of(state, datetime.now(UTC)))
    engine = await open_engine(url)
    try:
        context = context_of(engine, settings=Settings(), guarded=True)
        async with AsyncTestClient(
            build(context), base_url="http://dlq.example", raise_server_exceptions=False
        ) as client:
            root = await token(context, Role.ADMIN, name="root")
            if state in {"many", "hostile"}:
                client.base_url = "http://dlq.example/api/v1"  # type: ignore[assignment]
                client.headers["authorization"] = f"Bearer {root}"
                await busy(client, words=HOSTILE_WORDS if state == "hostile" else ())
                del client.headers["authorization"]
                client.base_url = "http://dlq.example"  # type: ignore[assignment]
            yield client, context, root
    finally:
        await engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("role", Role)
async def test_pages_are_well_formed_for_every_role(state: str, role: Role, tmp_path: Path) -> None:
    async with serving(state, tmp_path) as (client, context, root):
        shown = root if role is Role.ADMIN else await token(context, role)
        found = await crawl(client, shown)

    wrong = [one for one in found.problems if role is Role.ADMIN or ": 403" not in one]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("state", ["many", "hostile"])
async def test_pages_are_well_formed_for_those_limited_to_a_mailbox(
    state: str, tmp_path: Path
) -> None:
    async with serving(state, tmp_path) as (client, context, _):
        shown = await token(context, Role.OPERATOR, "payments", name="limited")
        found = await crawl(client, shown)

    assert [one for one in found.problems if ": 403" not in one] == []


@pytest.mark.slow
async def test_every_page_is_reached_by_some_link(tmp_path: Path) -> None:
    reached: set[str] = {*ELSEWHERE}
    for state in STATES:
        async with serving(state, tmp_path) as (client, _, root):
            reached |= (await crawl(client, root)).routes

    assert [path for path in page_routes() if path not in reached] == []
