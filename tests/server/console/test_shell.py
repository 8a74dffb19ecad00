"""The shell of the console: navigation by role, the door, problems as pages."""

import pytest

from deadletter.core.access import Role
from deadletter.server.console.screens import SCREENS
from deadletter.server.context import ServerContext
from office.making import make_letters
from server.console.conftest import Browser, SignedIn


async def test_an_empty_office_teaches(browser: Browser) -> None:
    page = await browser.get("/")

    assert page.h1 == "No open letters"
    assert "Access is off" in page.text
    assert any("dlq" in one.text for one in page.main.all("code"))


async def test_letters_are_counted_in_the_headline(
    browser: Browser, context: ServerContext
) -> None:
    await context.store.keep(make_letters(3))

    assert (await browser.get("/")).h1 == "3 open letters, 1 problem"


@pytest.mark.parametrize("role", Role)
async def test_the_navigation_has_the_screens_of_a_role(signed_in: SignedIn, role: Role) -> None:
    page = await (await signed_in(role)).get("/")

    shown = [one["href"] for one in page.find("nav", aria_label="Screens").all("a")]
    of_all = [screen.path for screen in SCREENS if screen.role is Role.READER]
    wanted = [screen.path for screen in SCREENS] if role is Role.ADMIN else of_all
    assert list(dict.fromkeys(shown)) == wanted
    assert "Access is off" not in page.text


async def test_strangers_are_led_to_the_door_and_back(
    stranger: Browser, signed_in: SignedIn
) -> None:
    door = await stranger.get("/?part=acts")

    assert (door.h1, stranger.path) == ("Sign in", "/sign-in?next=%2F%3Fpart%3Dacts")
    assert door.form(action="/sign-in").values["next"] == ["/?part=acts"]


async def test_unknown_pages_say_so_in_words(browser: Browser) -> None:
    page = await browser.get("/nowhere", status=404)

    assert page.h1 == "Not found"
    assert page.link("Overview") == "/"


async def test_unknown_parameters_are_refused_with_a_hint(browser: Browser) -> None:
    page = await browser.get("/?prat=acts", status=400)

    assert "Did you mean part?" in page.text


async def test_unchanged_parts_are_not_sent_again(browser: Browser) -> None:
    await browser.part("/?part=headline")
    assert browser.last is not None
    tag = browser.last.headers["hx-ptag"]

    assert (await browser.part("/?part=headline", status=304, **{"hx-ptag": tag})).html == ""
