"""Groups of letters for the tests of their screens."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from deadletter.core.letter import By, DeadLetter, Group, GroupStatus, Standing
from deadletter.ports import LetterStore
from html_pages import Page
from office.making import NOW, make_letter

BY = By("anna", "because")
HOSTILE = "</title><script>x()</script> <img src=x onerror=x()> \u202eevil \x1b[31m'\""
_numbers = iter(range(1, 1_000_000))


def letter(
    name: str, *, age: float = 180.0, frame: str = "shop:charge#3f09ab", **fields: Any
) -> DeadLetter:
    """Return a letter of a group that died this many seconds ago."""
    made = make_letter(
        next(_numbers), fingerprint=name, now=NOW, died=timedelta(seconds=age), **fields
    )
    return replace(made, frame=frame)


async def keep(store: LetterStore, name: str, count: int = 1, **fields: Any) -> list[str]:
    """Keep letters of a group, and return their ids."""
    made = [letter(name, **fields) for _ in range(count)]
    for start in range(0, len(made), 500):
        await store.keep(made[start : start + 500])
    return [one.id for one in made]


async def stand(store: LetterStore, name: str, status: str, **fields: Any) -> None:
    """Set how a group stands."""
    standing = Standing(status=GroupStatus(status), since=NOW, **fields)
    await store.set_group(name, standing, BY)


async def group(store: LetterStore, name: str) -> Group:
    """Return a group by its whole name."""
    found = await store.groups(only_open=False, named=name)
    (one,) = [each for each in found if each.fingerprint == name]
    return one


async def standing(store: LetterStore, name: str) -> Standing:
    """Return how a group stands."""
    return (await group(store, name)).standing


def rows(page: Page) -> list[str]:
    """Return the names of the groups in the list, from top to bottom."""
    return [one["id"].removeprefix("g-") for one in page.all("tr") if one.get("id")]


def tabs(page: Page) -> dict[str, str]:
    """Return the tabs with their counts; an empty text where none is shown."""
    nav = page.find("nav", class_="tabs")
    return {
        link.text.removesuffix(tally).strip(): tally
        for link in nav.all("a")
        for tally in ["".join(one.text for one in link.all("span", class_="tally"))]
    }


def live(page: Page, id: str) -> str:
    """Return the path of a part that refreshes by itself."""
    return page.find(id=id)["hx-get"]
