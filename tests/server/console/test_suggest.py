"""Completion of the search field, and the page that explains searches."""

from deadletter.core.access import Role
from deadletter.core.query import FIELDS, parse
from deadletter.server.context import ServerContext
from html_pages import Page
from server.console.conftest import Browser, SignedIn
from server.console.letters_rig import HOSTILE, fields_of, keep


def texts(page: Page) -> list[str]:
    """Return what each completion would put into the search."""
    return [one["data-text"] for one in page.all("li", role="option")]


async def test_fields_are_offered_with_what_they_mean(browser: Browser) -> None:
    part = await browser.part("/search/suggest?q=is:open so&at=10")

    option = part.find("li", role="option")
    assert (option["data-text"], option["data-start"], option["data-end"]) == ("source:", "8", "10")
    assert "the mailbox it came from" in option.text


async def test_values_are_offered_with_counts(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 3)
    await keep(context.store, 1, first=10, error_type="builtins.KeyError")

    part = await browser.part("/search/suggest?q=error:&at=6")

    assert texts(part) == ["TimeoutError", "KeyError"]
    assert "3 letters" in part.all("li")[0].text


async def test_only_what_is_before_the_cursor_counts(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)

    part = await browser.part("/search/suggest?q=sou is:open&at=3")

    assert texts(part) == ["source:"]


async def test_readers_are_not_offered_what_is_masked(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 2, body=b'{"password": "x", "amount": 1}')
    reader = await signed_in(Role.READER)

    part = await reader.part("/search/suggest?q=body.&at=5")

    assert texts(part) == ["body.amount:"]


async def test_values_of_other_mailboxes_are_not_offered(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    await keep(guarded.store, 1, version="9.9")
    await keep(guarded.store, 1, first=5, source="mails", version="1.1")
    reader = await signed_in(Role.READER, "mails")

    assert texts(await reader.part("/search/suggest?q=version:&at=8")) == ["1.1"]
    assert texts(await reader.part("/search/suggest?q=source:&at=7")) == ["mails"]


async def test_hostile_values_are_text_or_left_out(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1, key=HOSTILE)
    await keep(context.store, 1, first=5, key="<img src=x>")

    part = await browser.part("/search/suggest?q=key:&at=4")

    assert texts(part) == ['"<img src=x>"']
    assert part.all("img") == []


async def test_completions_can_be_parsed(browser: Browser, context: ServerContext) -> None:
    await keep(context.store, 1, key='a "b" (c) d:e', version="1 2")

    for field in ("key", "version", "error", "source", "is"):
        start = f"{field}:"
        for text in texts(await browser.part(f"/search/suggest?q={start}&at={len(start)}")):
            parse(f"{start}{text}")


async def test_a_long_text_is_refused(browser: Browser) -> None:
    await browser.part("/search/suggest?q=is:open&at=70000", status=400)


async def test_the_help_has_every_field_and_searches_that_work(
    browser: Browser, context: ServerContext
) -> None:
    await keep(context.store, 1)

    page = await browser.get("/help/search")

    names = {row[0].partition(",")[0] for row in page.table("Fields and their values")}
    assert names == set(FIELDS)
    tried = [link for link in page.main.all("a") if link["href"].startswith("/letters")]
    assert len(tried) > len(FIELDS)
    for link in tried:
        assert fields_of(link["href"])["q"] == link.text
        await browser.get(link["href"])
