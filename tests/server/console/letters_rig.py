"""Letters for the tests of the list, its acts and what finds them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from deadletter.core.letter import By, State
from deadletter.core.query import parse
from deadletter.ports import LetterStore, Move
from html_pages import Element, Page
from office.making import NOW, make_letter
from server.console.conftest import Browser

HOSTILE = "<script>x()</script> </textarea> \u202eevil \x1b[31m'\""


async def keep(store: LetterStore, count: int, *, first: int = 1, **fields: Any) -> list[str]:
    """Keep letters that died one second after the other; return their ids, newest first."""
    made = [
        make_letter(number, died=timedelta(seconds=180 + count + first - number), now=NOW, **fields)
        for number in range(first, first + count)
    ]
    for start in range(0, len(made), 500):
        await store.keep(made[start : start + 500])
    return [letter.id for letter in reversed(made)]


async def move(store: LetterStore, ids: Sequence[str], state: State) -> None:
    """Put pending letters into another state."""
    moved = await store.move(
        Move(ids=tuple(ids), old=frozenset({State.PENDING}), new=state), By("test")
    )
    assert set(moved) == set(ids)


async def states(store: LetterStore, query: str = "") -> dict[str, int]:
    """Return how many letters of a search are in each state."""
    found: dict[str, int] = {}
    after: str | None = None
    while True:
        page = await store.find(parse(query), limit=500, after=after)
        for head in page.heads:
            found[head.state] = found.get(head.state, 0) + 1
        if (after := page.after) is None:
            return found


def rows(page: Page) -> list[str]:
    """Return the ids of the letters in the list, from top to bottom."""
    return [one["id"].removeprefix("l-") for one in page.all("tr") if one.get("id")]


def row(page: Page, id: str) -> Element:
    """Return the row of a letter."""
    return page.find("tr", id=f"l-{id}")


def live(page: Page, id: str) -> str:
    """Return the path of a part that refreshes by itself."""
    return page.find(id=id)["hx-get"]


def fields_of(path: str) -> dict[str, str]:
    """Return the query of a path."""
    return dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))


async def act(
    browser: Browser,
    verb: str,
    *,
    ids: Sequence[str] = (),
    query: str = "",
    status: int = 200,
    **fields: Any,
) -> Page:
    """Open the dialog of a verb as a browser without scripts does, and send its form."""
    chosen = "".join(f"&id={id_}" for id_ in ids)
    every = "" if ids else "&all=true"
    dialog = await browser.get(f"/letters/dialog?verb={verb}&q={query}{chosen}{every}")
    form = next(one for one in dialog.forms if one.method == "post" and "/letters/" in one.action)
    return await browser.submit(form, status=status, **fields)
