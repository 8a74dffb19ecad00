"""The palette: go to anything by a few characters of it."""

import pytest

from deadletter.core.access import Role
from deadletter.server.console.screens import SCREENS
from deadletter.server.context import ServerContext
from html_pages import Page
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE, fields_of, keep


def places(page: Page) -> dict[str, list[str]]:
    """Return the paths of what was found, by kind."""
    return {
        group.find(class_="kind").text: [one["href"] for one in group.all("a")]
        for group in page.all("div", role="group")
    }


async def test_all_screens_are_offered_at_first(browser: Browser) -> None:
    part = await browser.part("/palette?part=dialog")

    assert places(part) == {"Screens": [*[one.path for one in SCREENS], "/help/search"]}
    assert part.find("input")["aria-controls"] == part.find(role="listbox")["id"]


async def test_screens_of_administrators_are_not_offered_to_others(signed_in: SignedIn) -> None:
    part = await (await signed_in(Role.READER)).part("/palette?part=found")

    assert "/access" not in places(part)["Screens"]


async def test_six_characters_of_a_letter_are_enough(
    browser: Browser, context: ServerContext
) -> None:
    (id_,) = await keep(context.store, 1)

    assert places(await browser.part(f"/palette?q={id_[:6]}&part=found"))["Letters"] == [
        f"/letters/{id_}"
    ]
    assert "Letters" not in places(await browser.part(f"/palette?q={id_[:5]}&part=found"))


async def test_groups_and_mailboxes_are_found_by_text(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)
    (letter,) = await context.store.get(
        [head.id for head in (await context.store.find(limit=1)).heads]
    )

    by_error = places(await browser.part("/palette?q=timeouterr&part=found"))
    by_text = places(await browser.part("/palette?q=did not answer&part=found"))
    by_name = places(await browser.part("/palette?q=order&part=found"))

    assert by_error["Groups"] == by_text["Groups"] == [f"/groups/{letter.head.fingerprint}"]
    assert by_name["Mailboxes"] == ["/queues/orders"]
    assert fields_of(by_text["Search"][0]) == {"q": "did not answer"}


async def test_limited_callers_find_their_mailboxes_only(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    (hidden,) = await keep(guarded.store, 1)
    await keep(guarded.store, 1, first=5, source="mails", error_type="builtins.KeyError")
    reader = await signed_in(Role.READER, "mails")

    for text in (hidden[:8], "timeout", "orders"):
        found = places(await reader.part(f"/palette?q={text}&part=found"))
        assert found.keys() <= {"Screens", "Search"}, text


@pytest.mark.parametrize(
    "text", [HOSTILE, '"><img src=x onerror=alert(1)>', "\\", "(((", "a" * 200]
)
async def test_hostile_text_is_only_text(
    browser: Browser, context: ServerContext, text: str
) -> None:
    await keep(context.store, 1, error_text=text)

    answer = await browser.client.get("/palette", params={"q": text})

    page = Page(answer.text)
    assert page.wrong == []
    assert page.all("img", src="x") == []
    assert "\u202e" not in answer.text


async def test_the_palette_is_a_page_as_well(browser: Browser, context: ServerContext) -> None:
    (id_,) = await keep(context.store, 1)

    page = await browser.get("/palette")
    found = await browser.submit(page.form(action="/palette"), q=id_[:8])

    assert f"/letters/{id_}" in found.main.all("a")[0]["href"]
